"""What a choice costs: python -m benchmarks.choices [--repetitions=3] [--steps=49152]
[--only=TEXT]

Training speed with one flag other than by default, beside all defaults: main.py with --preset=none,
8 environments x 128 steps, 4 epochs x 4 minibatches, a worker process per core. Each choice is run
in turn with the default, in fresh processes with the same seeds. Speeds are environment steps per
second from the end of the first iteration to the end of the last. "x default" is the median of the
ratios of each pair of runs, one after the other, for the machine may be busier at one time than at
another. Times of the phases are ratios of medians. Choices of spaces and masks wrap CartPole,
which takes about a microsecond of a step, and those of actions
have more of them to choose. The machine should have nothing else to do. Writes results/choices.json
and choices.md.

--only: choices that contain this text, which are printed and not written.
"""

from functools import partial
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks import harness
from benchmarks.trainers import PHASES, run_ours

DEFAULT = f"{harness.QUIET} --preset=none"
WRAPPER = "--wrapper=benchmarks.choices"
CHOICES = {
    "CartPole-v1": (
        "--activation=relu",
        "--activation=elu",
        "--activation=gelu",
        "--activation=silu",
        "--hidden_size=256",
        "--num_layers=3",
        "--policy_layers=64,64",
        "--share_trunk=True",
        "--model=lstm",
        "--model=examples.own_model:NormalizedActorCritic",
        "--learner=examples.own_loss:PenalizedLearner",
        "--optimizer=torch.optim:AdamW",
        "--normalize_advantages=rollout",
        "--target_kl=1",
        "--frame_stack=4",
        "--normalize_observations=False",
        "--normalize_rewards=False",
        "--num_workers=0",
        "--inference=learner",
        f"{WRAPPER}:Masks",
        f"{WRAPPER}:MultiBinaryActions",
        f"{WRAPPER}:MultiDiscreteActions",
        f"{WRAPPER}:DictActions",
        f"{WRAPPER}:DictObservations",
    ),
    "Pendulum-v1": (
        "--use_sde=True",
        "--squash_actions=True",
        "--normalize_rewards=False",
        "--share_trunk=True",
        "--model=lstm",
    ),
}


class MultiBinaryActions(gymnasium.ActionWrapper):
    """Act by four bits, of which the first is the direction."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.action_space = spaces.MultiBinary(4)

    def action(self, action: Any) -> int:
        return int(action[0])


class MultiDiscreteActions(gymnasium.ActionWrapper):
    """Act by three choices, of which the first is the direction."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.action_space = spaces.MultiDiscrete([2, 3, 4])

    def action(self, action: Any) -> int:
        return int(action[0])


class DictActions(gymnasium.ActionWrapper):
    """Act by the direction, a choice and two numbers."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        parts = {"choice": spaces.Discrete(3), "numbers": spaces.Box(-1, 1, (2,))}
        self.action_space = spaces.Dict({"direction": spaces.Discrete(2), **parts})

    def action(self, action: Any) -> int:
        return int(action["direction"])


class Masks(gymnasium.Wrapper):
    """Say that both directions are allowed."""

    mask = np.ones(2, np.int8)

    def reset(self, **options: Any) -> Any:
        observation, info = self.env.reset(**options)
        return observation, {**info, "action_mask": self.mask}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, "action_mask": self.mask}


class DictObservations(gymnasium.ObservationWrapper):
    """Observe positions and velocities as two parts."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        whole: Any = env.observation_space
        parts = {"positions": slice(0, None, 2), "velocities": slice(1, None, 2)}
        boxes = {name: spaces.Box(whole.low[x], whole.high[x]) for name, x in parts.items()}
        self.observation_space = spaces.Dict(boxes)

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {"positions": observation[::2], "velocities": observation[1::2]}


def measure(env_name: str, flag: str, steps: int, repetitions: int) -> harness.Result:
    """Train by default and with a flag in turn; return runs, and ratios of the flag's speeds."""
    variants = {
        "default": partial(run_ours, env_name, steps, DEFAULT),
        flag: partial(run_ours, env_name, steps, f"{DEFAULT} {flag}"),
    }
    runs = harness.alternate(variants, range(1, repetitions + 1), env_name)
    speeds = {name: [run["steps_per_second"] for run in found] for name, found in runs.items()}
    return {
        "env_name": env_name,
        "flag": flag,
        "ratios": harness.ratios(speeds[flag], speeds["default"]),
        "runs": {"default": runs["default"], "choice": runs[flag]},
    }


def show(results: list[harness.Result]) -> str:
    """Write a table with a row for each choice, beside the default as it was run in turn."""
    rows = []
    for result in results:
        default, choice = (result["runs"][who] for who in ("default", "choice"))
        speeds = [f"{of(runs, 'steps_per_second'):,.0f}" for runs in (choice, default)]
        pairs = result["ratios"]["of_pairs"]
        times = [f"{of(choice, phase) / of(default, phase):.2f}" for phase in PHASES]
        cells = [result["env_name"], f"`{result['flag']}`", *speeds, f"{median(pairs):.2f}"]
        rows.append(" | ".join([*cells, harness.each(pairs), *times]))
    head = "environment | choice | steps/s | default, steps/s | x default | each"
    return harness.table(f"{head} | time of collecting, x | of learning, x", rows)


def of(runs: list[harness.Result], column: str) -> float:
    """Return the median of a number of runs."""
    return median(run[column] for run in runs)


def main() -> None:
    parser = harness.make_parser(__doc__, repetitions=3, steps=49_152, only="")
    given = parser.parse_args()
    chosen = [
        (env_name, flag)
        for env_name, flags in CHOICES.items()
        for flag in flags
        if given.only in flag
    ]
    if given.repetitions < 1 or not chosen:
        parser.error("give --repetitions of at least 1, and --only a text that a choice contains")
    result = harness.describe()
    found = [measure(*choice, given.steps, given.repetitions) for choice in chosen]
    if given.only:
        print(f"\n{show(found)}")
        return
    result["choices"] = found
    harness.write_json("choices.json", result)
    harness.write_page("choices.md", __doc__, show(found), result=result)


if __name__ == "__main__":
    main()
