"""How long a policy takes to answer: python -m benchmarks.latency [--rounds=50]

Microseconds of processor time of one call of `predict` of a policy that ppo.load_policy has loaded,
and of `values`, beside `predict` of Stable-Baselines3 where that is installed (of an LSTM, where
sb3-contrib is). MLP: two layers of 64 units, LunarLander-v3's observations (8,) and four actions;
LSTM: the same with --model=lstm, 128 units, beside RecurrentPPO's 256; CNN: the Nature CNN on
images (84, 84, 4) and six actions, in float32. "one" is one observation, 256 a batch; "random"
actions are drawn, others are the most likely ones.

All of a network is measured in one process with one thread, taking turns: each round calls each for
a hundredth of a second at least. The median of the rounds is shown, and the fastest round, which
other work on the machine disturbs least: time that other programs have the core is not counted, but
they empty its caches. Weights are untrained, which takes as long. Writes results/latency/README.md
and latency.json.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks import harness

FOLDER = "latency"
ROWS = 256
MIN_SECONDS = 0.01  # of calls that are timed together
SCREEN = "benchmarks.latency:Screen"
MODELS: dict[str, dict[str, Any]] = {
    "MLP": {"env_name": "LunarLander-v3", "model": "mlp", "hidden_size": 64},
    "LSTM": {"env_name": "LunarLander-v3", "model": "lstm"},
    "CNN": {"env_name": SCREEN, "model": "cnn", "precision": "float32"},
}
Call = Callable[[], Any]


class Screen(gymnasium.Env):
    """Shows four images in a stack, all the same."""

    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        return np.full((4, 84, 84), 100, np.uint8), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        return self.reset()[0], 0.0, False, False, {}


def own_calls(model: str) -> dict[str, Call]:
    """Return what is measured of this trainer's policy, by name."""
    from ppo import Config, load_policy, train

    flags = {**MODELS[model], "num_envs": 2, "num_steps": 16, "total_steps": 32, "num_workers": 0}
    with tempfile.TemporaryDirectory() as folder:
        config = Config(
            **flags,
            num_minibatches=1,
            num_epochs=1,
            eval_episodes=0,
            report=False,
            verbose=0,
            run_dir=f"{folder}/run",
        )
        policy = load_policy(train(config).checkpoint, flags["env_name"])
    one = policy.make_env().reset(seed=0)[0].copy()
    many = np.stack([one] * ROWS)
    state, states = policy.initial_state(), policy.initial_state(ROWS)
    return {
        "predict, one": lambda: policy.predict(one, state=state),
        "predict, one, random": lambda: policy.predict(one, False, state=state),
        f"predict, {ROWS}": lambda: policy.predict(many, state=states),
        f"predict, {ROWS}, random": lambda: policy.predict(many, False, state=states),
        "values, one": lambda: policy.values(one, state),
        f"values, {ROWS}": lambda: policy.values(many, states),
    }


def other_calls(model: str) -> dict[str, Call]:
    """Return what is measured of Stable-Baselines3, by name; nothing if it is not installed."""
    if not find_spec("sb3_contrib" if model == "LSTM" else "stable_baselines3"):
        return {}
    env = Screen() if model == "CNN" else gymnasium.make(MODELS[model]["env_name"])
    algorithm: Any
    if model == "LSTM":
        from sb3_contrib import RecurrentPPO

        algorithm = RecurrentPPO("MlpLstmPolicy", env, device="cpu")
    else:
        from stable_baselines3 import PPO

        name = "CnnPolicy" if model == "CNN" else "MlpPolicy"
        algorithm = PPO(name, env, n_steps=64, device="cpu")
    one = env.reset(seed=0)[0]
    many = np.stack([one] * ROWS)
    return {
        "predict, one": lambda: algorithm.predict(one, deterministic=True),
        "predict, one, random": lambda: algorithm.predict(one),
        f"predict, {ROWS}": lambda: algorithm.predict(many, deterministic=True),
        f"predict, {ROWS}, random": lambda: algorithm.predict(many),
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
    """Time all calls in turn, and return the microseconds of each round, by trainer and call."""
    import torch

    torch.set_num_threads(1)
    calls = {"own": own_calls(model), "other": other_calls(model)}
    found: harness.Result = {name: {call: [] for call in own} for name, own in calls.items()}
    for _ in range(rounds):
        for name, own in calls.items():
            for label, call in own.items():
                found[name][label].append(microseconds(call))
    return found


def show(results: harness.Result) -> str:
    """Write a table of medians and fastest rounds."""
    rows = []
    for model, found in results.items():
        for label, times in found["own"].items():
            other = found["other"].get(label)
            shown = [f"{median(times):,.1f}", f"{min(times):,.1f}"]
            shown += [f"{median(other):,.1f}", f"{min(other):,.1f}"] if other else ["", ""]
            rows.append(" | ".join([f"{model}: {label}", *shown]))
    head = "µs of a call | median | fastest | Stable-Baselines3, median | fastest"
    return harness.table(head, rows)


def main() -> None:
    given = harness.make_parser(__doc__, rounds=50).parse_args()
    packages = [name for name in ("stable_baselines3", "sb3_contrib") if find_spec(name)]
    about = harness.describe(*packages)
    results = {}
    for model in MODELS:
        print(f"measuring the {model}", flush=True)
        results[model] = harness.in_fresh_process(partial(measure, model), given.rounds)
    harness.write_json(f"{FOLDER}/{FOLDER}.json", {**about, "models": results})
    harness.write_page(str(Path(FOLDER, "README.md")), __doc__, show(results), result=about)


if __name__ == "__main__":
    main()
