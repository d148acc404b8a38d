"""PPO of Stable-Baselines3 with the values of RL-Baselines3-Zoo, in zoo.json: hyperparams/ppo.yml
of DLR-RM/rl-baselines3-zoo at commit 208b6fd. Robots of MuJoCo have the values of v4, Pong those of
all Atari games. Environments are made as there: in one process, none able to render."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import harness
from benchmarks.parts.callbacks import PROOF, Watch

MLP = "MlpPolicy"
GAME = "PongNoFrameskip-v4"
# "lin_0.1" falls linearly from 0.1 to 0.
ZOO: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())
OF_THE_ENVIRONMENT = {"n_envs", "n_timesteps", "normalize", "frame_stack"}
EVALUATED = 10  # environments of an evaluation


def make_envs(env_name: str, num_envs: int, seed: int, is_training: bool) -> Any:
    """Make environments as the zoo does. Statistics of normalization change in training only."""
    import gymnasium
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    values = ZOO[env_name]
    wrapper: Any = None
    if env_name == GAME:
        import ale_py  # noqa: F401 (it registers the games)

        wrapper = AtariWrapper
    make = partial(gymnasium.make, env_name)
    envs: Any = make_vec_env(make, num_envs, seed, wrapper_class=wrapper)
    if values.get("normalize"):
        gamma = values.get("gamma", 0.99)
        envs = VecNormalize(envs, is_training, norm_reward=is_training, gamma=gamma)
    return VecFrameStack(envs, values["frame_stack"]) if "frame_stack" in values else envs


def settings_of(env_name: str) -> dict[str, Any]:
    """Return the arguments of PPO."""
    from torch import nn

    found = {name: x for name, x in ZOO[env_name].items() if name not in OF_THE_ENVIRONMENT}
    for name in ("learning_rate", "clip_range"):
        if isinstance(found.get(name), str):
            found[name] = linear(float(found[name].removeprefix("lin_")))
    if "policy_kwargs" in found:
        activation = getattr(nn, found["policy_kwargs"]["activation_fn"])
        found["policy_kwargs"] = {**found["policy_kwargs"], "activation_fn": activation}
    return {**found, "device": "cpu" if found["policy"] == MLP else "auto"}


def linear(first: float) -> Callable[[float], float]:
    """Return a schedule, a function of the share of the run that remains."""
    return lambda remaining: first * remaining


def train(
    env_name: str,
    seed: int,
    total_steps: int | None = None,
    threshold: float | None = None,
    limit: float | None = None,
) -> harness.Result:
    """Train in this process, to the end, until it is solved as by callbacks.Solved, or until a
    limit of seconds. An MLP has one thread of torch, which is the best for it."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy

    class Watched(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.reason: str | None = None

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    watch.add(info["episode"]["r"])
            if limit is not None and time.perf_counter() - begin >= limit:
                self.reason = "limit"
            return not self.reason

        def _on_rollout_start(self) -> None:  # after each update
            if threshold is not None and not self.reason and watch.is_solved(evaluate):
                self.reason = "solved"

        def _on_training_end(self) -> None:
            self._on_rollout_start()

    def evaluate(episodes: int) -> float:
        if normalizer := model.get_vec_normalize_env():
            eval_envs.obs_rms = normalizer.obs_rms
        mean: Any = evaluate_policy(model, eval_envs, episodes)[0]
        found.append(float(mean))
        return found[-1]

    found: list[float] = []  # results of evaluations
    values = ZOO[env_name]
    torch.set_num_threads(1 if values["policy"] == MLP else harness.num_cores())
    envs = make_envs(env_name, values.get("n_envs", 1), seed, is_training=True)
    eval_envs = make_envs(env_name, EVALUATED, seed + 1_000_000, is_training=False)
    model = PPO(env=envs, seed=seed, **settings_of(env_name))
    watch = Watch(threshold or 0.0)
    watched = Watched()
    begin = time.perf_counter()
    model.learn(total_steps or values["n_timesteps"], watched)
    seconds = time.perf_counter() - begin
    return {
        "seed": seed,
        "steps": model.num_timesteps,
        "seconds": seconds,
        "last_100": fmean(watch.returns) if watch.returns else None,
        "evaluation": found[-1] if watched.reason == "solved" else evaluate(PROOF),
        "reason": watched.reason,
    }
