"""How long a policy takes to answer: python -m benchmarks.latency [--rounds=50] [--quick]

Microseconds of processor time of a call of `predict`, and `predict_batch` of 256 observations, of a
policy that load_policy has loaded, and of `predict` of Stable-Baselines3 where that is installed.
MLP: two layers of 64 units, LunarLander-v3's observations (8,) and four actions; LSTM: the same
with --model=lstm, 128 units (not compared); CNN: the Nature CNN on stacks of four images
(4, 84, 84) and six actions, in float32; robot: a policy that reads twelve joints and a goal of a
Dict, whose camera (48, 48, 3) is resized for the value network only. "random" actions are sampled,
others are the most likely ones.

All of a network is measured in one process with one thread, in turn: each round calls each for a
hundredth of a second at least. Shown are the median and the fastest round, which other work on the
machine disturbs least. Weights are untrained, which takes as long. Writes results/latency.md."""

import os
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from importlib.util import find_spec
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks import harness

NAME = "latency"
ROWS = 256
MIN_SECONDS = 0.01  # of calls that are timed together
SIZES = {"num_envs": 2, "num_steps": 16, "num_workers": 0, "num_minibatches": 1, "preset": "none"}
Call = Callable[[], Any]


class Screen(gymnasium.Env):
    """Show four images in a stack, all the same."""

    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.full((4, 84, 84), 100, np.uint8), {}

    def step(self, action: int) -> Any:
        return self.reset()[0], 0.0, False, False, {}


class Robot(gymnasium.Env):
    """Show joints, a goal and a camera, always the same."""

    observation_space = spaces.Dict(
        joints=spaces.Box(-3, 3, (12,)),
        goal=spaces.Box(-1, 1, (3,)),
        camera=spaces.Box(0, 255, (48, 48, 3), np.uint8),
    )
    action_space = spaces.Box(-1, 1, (4,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.observation_space.seed(0)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.reset()[0], 0.0, False, False, {}


MODELS: dict[str, dict[str, Any]] = {
    "MLP": {"env_name": "LunarLander-v3", "model": "mlp", "hidden_size": 64},
    "LSTM": {"env_name": "LunarLander-v3", "model": "lstm"},
    "CNN": {"env_name": Screen, "model": "cnn", "precision": "float32"},
    "robot": {
        "env_name": Robot,
        "policy_keys": "joints,goal",
        "screen_size": 36,
        "hidden_size": 64,
        "precision": "float32",
    },
}


def own_calls(model: str) -> dict[str, Call]:
    """Return what is measured of this trainer's policy, by name."""
    from ppo import load_policy, train

    flags = {**harness.QUIET, **SIZES, **MODELS[model], "total_steps": 32}
    with tempfile.TemporaryDirectory() as folder:
        summary = train(**flags, run_dir=f"{folder}/run")
        alone, beside = (load_policy(summary.checkpoint, flags["env_name"]) for _ in range(2))
    one = deepcopy(alone.make_env().reset(seed=0)[0])
    many = [one] * ROWS
    return {
        "predict": lambda: alone.predict(one),
        "predict, random": lambda: alone.predict(one, stochastic=True),
        f"predict_batch of {ROWS}": lambda: beside.predict_batch(many),
        f"predict_batch of {ROWS}, random": lambda: beside.predict_batch(many, stochastic=True),
    }


def other_calls(model: str) -> dict[str, Call]:
    """Return what is measured of Stable-Baselines3; nothing if it is not installed."""
    if model in ("LSTM", "robot") or not find_spec("stable_baselines3"):
        return {}
    from stable_baselines3 import PPO

    env = Screen() if model == "CNN" else gymnasium.make(MODELS[model]["env_name"])
    algorithm = PPO("CnnPolicy" if model == "CNN" else "MlpPolicy", env, n_steps=64, device="cpu")
    one = env.reset(seed=0)[0]
    many = np.stack([one] * ROWS)
    return {
        "predict": lambda: algorithm.predict(one, deterministic=True),
        "predict, random": lambda: algorithm.predict(one),
        f"predict_batch of {ROWS}": lambda: algorithm.predict(many, deterministic=True),
        f"predict_batch of {ROWS}, random": lambda: algorithm.predict(many),
    }


def microseconds(call: Call) -> float:
    """Return the processor time of a call, a mean over MIN_SECONDS at least."""
    count = 1
    while True:
        start = time.thread_time()
        for _ in range(count):
            call()
        passed = time.thread_time() - start
        if passed >= MIN_SECONDS:
            return 1e6 * passed / count
        count *= 2


def measure(model: str, rounds: int) -> harness.Result:
    """Time all calls in turn; return the microseconds of each round, by trainer and call."""
    import torch

    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    torch.set_num_threads(1)
    calls = {"ours": own_calls(model), "SB3": other_calls(model)}
    torch.set_num_threads(1)
    found: harness.Result = {who: {name: [] for name in own} for who, own in calls.items()}
    for _ in range(rounds):
        for who, own in calls.items():
            for name, call in own.items():
                found[who][name].append(microseconds(call))
    return found


def show(results: harness.Result) -> str:
    rows = []
    for model, result in results.items():
        for name, times in result["rounds"]["ours"].items():
            other = result["rounds"]["SB3"].get(name)
            cells = [f"{median(times):,.1f}", f"{min(times):,.1f}"]
            cells += [f"{median(other):,.1f}", f"{min(other):,.1f}"] if other else ["", ""]
            rows.append(" | ".join([model, name, *cells]))
    head = "network | call | µs, median | fastest | Stable-Baselines3, median | fastest"
    return harness.table(head, rows)


def main() -> None:
    given = harness.make_parser(__doc__, rounds=50).parse_args()
    packages = ["stable-baselines3"] if find_spec("stable_baselines3") else []
    results = {}
    for model in ["MLP", "robot"] if given.quick else MODELS:
        print(f"measuring the {model}", flush=True)
        rounds = harness.in_fresh_process(measure, model, 5 if given.quick else given.rounds)
        results[model] = {**harness.describe(*packages), "rounds": rounds}
    if not given.quick:
        harness.write(NAME, __doc__, results, show(results))
    print(f"\n{show(results)}")


if __name__ == "__main__":
    main()
