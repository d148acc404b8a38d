"""A run of Stable-Baselines3 with the zoo's values: python -m benchmarks.parts.zoo
--env=CartPole-v1 [--seed=1] [--total_steps=STEPS] [--seconds=SECONDS] [--stop_when=solved]
[--num_threads=THREADS]

Trains by PPO of Stable-Baselines3 with the values that RL-Baselines3-Zoo has tuned: the file
hyperparams/ppo.yml of DLR-RM/rl-baselines3-zoo at commit 208b6fd, which agrees with the release
rl_zoo3 2.9.2 in all values that zoo.json has; there, too, LunarLander is v3. Robots of
MuJoCo have the values of v4, Pong those of all games of Atari. What the zoo leaves out is
Stable-Baselines3's default. Environments are made as by the zoo: one after another in the only
process, each with a Monitor, none able to render.

The run ends after --total_steps, by default as many as the zoo's; after --seconds of training; or
by --stop_when, as of main.py: "solved" is the environment's own reward_threshold, "solved>=18"
another return, reached by the mean of 100 deterministic episodes, which are tried as main.py tries
them. Then 100 deterministic episodes are played, with frozen statistics of normalisation, and a
line of JSON is printed. By default, MLPs have one thread, which is the best for them, and others
one per core. benchmarks/solve.py and benchmarks/learning.py call this.
"""

import json
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from benchmarks import harness
from benchmarks.parts.workloads import GAME, plain_maker

MLP = "MlpPolicy"
# "lin_0.1" falls linearly from 0.1 to 0.
ZOO: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())
OF_THE_ENVIRONMENT = {"n_envs", "n_timesteps", "normalize", "frame_stack"}
WINDOW = 100  # episodes that running means are taken over, as in ppo/callbacks/statistics.py
EPISODES = 100  # of an evaluation, and of a proof
SHORT_EVAL_EPISODES = 10  # see ppo/extras/watch/stopping.py
EVALUATED = 10  # environments of an evaluation, side by side
SECONDS = 1.0  # between two points of a curve


def make_envs(env_name: str, num_envs: int, seed: int, is_training: bool) -> Any:
    """Make environments as the zoo does. Statistics of normalisation change in training only."""
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    values = ZOO[env_name]
    wrapper: Any = None
    if env_name == GAME:
        import ale_py  # noqa: F401 (it registers the games)

        wrapper = AtariWrapper
    envs: Any = make_vec_env(plain_maker(env_name), num_envs, seed, wrapper_class=wrapper)
    if values.get("normalize"):
        gamma = values.get("gamma", 0.99)
        envs = VecNormalize(envs, is_training, norm_reward=is_training, gamma=gamma)
    if "frame_stack" in values:
        envs = VecFrameStack(envs, values["frame_stack"])
    return envs


def settings_of(env_name: str) -> dict[str, Any]:
    """Return the settings of PPO's constructor."""
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


def make_model(env_name: str, seed: int) -> Any:
    """Make PPO and its environments."""
    from stable_baselines3 import PPO

    envs = make_envs(env_name, ZOO[env_name].get("n_envs", 1), seed, is_training=True)
    return PPO(env=envs, seed=seed, **settings_of(env_name))


def make_evaluation(env_name: str, seed: int, model: Any) -> Callable[..., float]:
    """Return what evaluates a model: the mean return of so many deterministic episodes."""
    from stable_baselines3.common.evaluation import evaluate_policy

    made: list[Any] = []  # environments, when they are first needed

    def evaluate(episodes: int = EPISODES) -> float:
        if not made:
            made.append(make_envs(env_name, EVALUATED, seed + 1_000_000, is_training=False))
        (envs,) = made
        if normalizer := model.get_vec_normalize_env():
            envs.obs_rms = normalizer.obs_rms
        mean_return, _ = evaluate_policy(model, envs, episodes, deterministic=True)
        return float(mean_return)

    return evaluate


def make_watch(
    threshold: float | None, seconds: float | None, evaluate: Callable[..., float]
) -> Any:
    """Make the callback that measures a run, and ends it when it is solved or its time is over."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Watch(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.returns: deque[float] = deque(maxlen=WINDOW)
            self.episodes = 0
            self.next_try = SHORT_EVAL_EPISODES  # after so many episodes
            self.curve: list[tuple[int, float, float | None]] = []  # step, seconds, mean return
            self.stopped = ""  # why, if it has
            self.steps = 0
            self.proof: float | None = None  # mean return of the last try

        @property
        def seconds(self) -> float:
            return time.perf_counter() - self.begin

        @property
        def mean_return(self) -> float | None:
            return fmean(self.returns) if self.returns else None

        def _on_training_start(self) -> None:
            self.begin = time.perf_counter()

        def _on_step(self) -> bool:
            if self.stopped:
                return False
            self.steps = self.num_timesteps
            for info in self.locals["infos"]:
                if "episode" in info:
                    self.returns.append(info["episode"]["r"])
                    self.episodes += 1
            now = self.seconds
            if now >= (self.curve[-1][1] if self.curve else 0) + SECONDS:
                self.curve.append((self.steps, now, self.mean_return))
            if seconds is not None and now >= seconds:
                self.stopped = "seconds"
            return not self.stopped

        def _on_rollout_start(self) -> None:
            """Look after each update but the last."""
            self.look()

        def _on_training_end(self) -> None:
            self.look(is_last=True)
            self.took = self.seconds
            self.curve.append((self.steps, self.took, self.mean_return))

        def look(self, is_last: bool = False) -> None:
            """Do as StopWhen in ppo/extras/watch/stopping.py."""
            if threshold is None or self.stopped or not self.returns:
                return
            is_early = self.episodes < self.next_try and not is_last
            if is_early or fmean(self.returns) + pstdev(self.returns) < threshold:
                return
            self.next_try = self.episodes + 3 * SHORT_EVAL_EPISODES
            if evaluate(SHORT_EVAL_EPISODES) >= threshold:
                self.next_try = self.episodes + EPISODES
                self.proof = evaluate()
                if self.proof >= threshold:
                    self.stopped = "solved"

    return Watch()


def learn(
    env_name: str,
    seed: int,
    total_steps: int | None = None,
    seconds: float | None = None,
    threshold: float | None = None,
    num_threads: int | None = None,
) -> harness.Result:
    """Train in this process, then evaluate.

    total_steps: by default the zoo's, seconds: of training, at most; threshold: the mean return at
    which it ends, if an evaluation proves it; num_threads: of torch.
    """
    import torch

    is_mlp = ZOO[env_name]["policy"] == MLP
    torch.set_num_threads(num_threads or (1 if is_mlp else harness.num_cores()))
    model = make_model(env_name, seed)
    evaluate = make_evaluation(env_name, seed, model)
    watch = make_watch(threshold, seconds, evaluate)
    model.learn(total_steps or ZOO[env_name]["n_timesteps"], watch)
    return {
        "env_name": env_name,
        "seed": seed,
        "steps": watch.steps,
        "seconds": watch.took,
        "episodes": watch.episodes,
        "mean_return": watch.mean_return,
        "evaluation": watch.proof if watch.stopped == "solved" else evaluate(),
        "solved": None if threshold is None else watch.stopped == "solved",
        "stopped": watch.stopped or None,
        "curve": watch.curve,
    }


def read_goal(env_name: str, stop_when: str) -> float | None:
    """Return the mean return that --stop_when asks for, if any.

    Raises ValueError if the environment has no threshold, or for conditions of another form.
    """
    if found := re.fullmatch(r"solved>=(-?[\d.]+)", stop_when):
        return float(found[1])
    if stop_when not in ("", "solved"):
        raise ValueError(f"{stop_when}: give solved or solved>=X")
    threshold = spec_of(env_name).reward_threshold if stop_when else None
    if stop_when and threshold is None:
        raise ValueError(f"{env_name} names no reward_threshold, give solved>=X")
    return threshold


def spec_of(env_name: str) -> Any:
    """Return what gymnasium knows of an environment."""
    import gymnasium

    if env_name == GAME:
        import ale_py  # noqa: F401 (it registers the games)
    return gymnasium.spec(env_name)


def train(env_name: str, seed: int, **flags: Any) -> harness.Result:
    """Train in a process of its own; "command_seconds" are from its command to its end.

    Raises SystemExit if it fails.
    """
    given = {"env": env_name, "seed": seed, **flags}
    command = [sys.executable, "-m", "benchmarks.parts.zoo"]
    command += [f"--{name}={value}" for name, value in given.items() if value is not None]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=harness.ROOT, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {done.returncode}")
    return {"command_seconds": seconds, **json.loads(done.stdout.splitlines()[-1])}


def main() -> None:
    parser = harness.make_parser(__doc__, seed=1)
    parser.prog = "python -m benchmarks.parts.zoo"
    parser.add_argument("--env", required=True, choices=ZOO, metavar="ENV", help=", ".join(ZOO))
    parser.add_argument("--total_steps", type=int, help="default: the zoo's")
    parser.add_argument("--seconds", type=float, help="of training, at most")
    parser.add_argument("--stop_when", default="", help="solved or solved>=X")
    parser.add_argument("--num_threads", type=int, help="of torch")
    given = parser.parse_args()
    try:
        threshold = read_goal(given.env, given.stop_when)
    except ValueError as error:
        parser.error(f"--stop_when: {error}")
    limits = (given.total_steps, given.seconds, threshold, given.num_threads)
    print(json.dumps(learn(given.env, given.seed, *limits)))


if __name__ == "__main__":
    main()
