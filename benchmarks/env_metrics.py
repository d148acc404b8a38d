"""The price of an environment's own metrics: python -m benchmarks.env_metrics [--repetitions=7]

Trains on CartPole-v1 with default flags in turn: Ten reports ten numbers in the info of an
episode's last step, of which four are numpy's, and Plain makes the same numbers but keeps them to
itself. The speed is in environment steps per second from the end of the first iteration to the end
of the last. Writes results/env_metrics.md and .json.
"""

from statistics import median
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

from benchmarks import harness

FLAGS = f"--preset=none --num_workers=2 --total_steps=163840 {harness.QUIET}"


class Ten(TimeLimit):
    """CartPole that reports ten numbers with each episode."""

    reports = True

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(CartPoleEnv(render_mode=render_mode), 500)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            numbers = {"is_success": truncated, **{f"number_{i}": float(i) for i in range(5)}}
            numbers["episode_metrics"] = {f"metric_{i}": np.float32(i) for i in range(4)}
            if self.reports:
                info = numbers
        return observation, reward, terminated, truncated, info


class Plain(Ten):
    """The same, without reporting them."""

    reports = False


def measure(name: str, seed: int) -> float:
    """Train once; return steps per second."""
    flags = f"--env_name=benchmarks.env_metrics:{name} --seed={seed} {FLAGS}"
    return harness.train(flags).steps_per_second


def main() -> None:
    given = harness.make_parser(__doc__, repetitions=7).parse_args()
    result = harness.describe()
    variants = {name: lambda seed, name=name: measure(name, seed) for name in ("Ten", "Plain")}
    speeds = harness.alternate(variants, range(1, given.repetitions + 1))
    result |= {"speeds": speeds, "ratios": harness.ratios(speeds["Ten"], speeds["Plain"])}
    harness.write_json("env_metrics.json", result)
    rows = [f"{name} | {median(each):,.0f}" for name, each in speeds.items()]
    found = result["ratios"]
    text = f"Ten / Plain: {found['of_medians']:.3f}; each pair: {harness.each(found['of_pairs'])}"
    table = harness.table("environment | steps/s, median", rows)
    harness.write_page("env_metrics.md", __doc__, table, text, result=result)


if __name__ == "__main__":
    main()
