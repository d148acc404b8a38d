"""What start-up, logging and being careful cost: python -m benchmarks.overheads [PART ...]
[--repetitions=5] [--steps=409600]

- startup: seconds from starting the command that a user would give, its output not on a terminal,
  until its first iteration begins, which is as long before its row in metrics.csv as its collecting
  and learning took, and until that row is there (looked for every 10 ms)
- loggers: LunarLander by its tuned preset without any logger but metrics.csv, which is always
  written; with the console and TensorBoard; and with histograms too, every 10 iterations
- env_metrics: CartPole-v1 by default flags. Ten reports ten numbers in the info of an episode's
  last step, of which four are numpy's, and Plain makes the same numbers but keeps them to itself
- safeguards: LunarLander as it is with a checkpoint every 10 iterations, and bare: workers are not
  watched, what environments return is not checked, nor whether losses are finite, no state is
  copied between iterations, and nothing is saved but at the start; by the tuned preset, whose
  iterations are 8,192 steps, and with iterations of 1,024, for which the work of each weighs more

Speeds are environment steps per second from the end of the first iteration to the end of the last;
the variants of a part take turns, in fresh processes with the same seeds. The machine should have
nothing else to do. Writes results/overheads.json and overheads.md.
"""

import sys
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

from benchmarks import harness

RESULTS = "overheads.json"
START = "--env_name=LunarLander-v2 --model=mlp"
LANDER = "--env_name=LunarLander-v3 --eval_episodes=0 --report=False --checkpoint_every=10"
BARE = {"program": (sys.executable, "-m", "benchmarks.internals")}
SHORT = "--preset=none --num_envs=8 --num_steps=128 --num_minibatches=4 --num_epochs=4"
TEN = f"--env_name=benchmarks.overheads:Ten --preset=none --num_workers=2 {harness.QUIET}"
# By part and by variant, of which the last is what the others are compared with: the flags, and
# options of harness.train.
Variant = tuple[str, dict[str, Any]]
PARTS: dict[str, dict[str, Variant]] = {
    "loggers": {
        "and histograms": (f"{LANDER} --logger=console,tensorboard", {"stdout": None}),
        "console, TensorBoard": (
            f"{LANDER} --logger=console,tensorboard --histogram_every=none",
            {"stdout": None},
        ),
        "none": (f"{LANDER} --logger=none", {}),
    },
    "env_metrics": {"Ten": (TEN, {}), "Plain": (TEN.replace("Ten", "Plain"), {})},
    "safeguards, preset": {
        "as it is": (f"{LANDER} --logger=none", {}),
        "bare": (f"{LANDER} --logger=none --checkpoint_every=1000000", BARE),
    },
    "safeguards, short iterations": {
        "as it is": (f"{LANDER} --logger=none {SHORT}", {}),
        "bare": (f"{LANDER} --logger=none {SHORT} --checkpoint_every=1000000", BARE),
    },
}


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


def start(_: int) -> harness.Result:
    """Start training and end it after its first iteration."""
    run = harness.train(START, only_first_row=True)
    return {"begins": run.startup_seconds, "finished": run.seconds_to_first_row}


def speed(flags: str, options: dict[str, Any], steps: int, seed: int) -> float:
    """Train once; return steps per second."""
    given = f"{flags} --total_steps={steps} --seed={seed}"
    return harness.train(given, **options).steps_per_second


def measure(part: str, repetitions: int, steps: int) -> harness.Result:
    """Measure a part's variants in turn; return all that was measured."""
    seeds = range(1, repetitions + 1)
    if part == "startup":
        return {"starts": harness.alternate({part: start}, seeds)[part]}
    variants = {
        name: partial(speed, flags, options, steps)
        for name, (flags, options) in PARTS[part].items()
    }
    return {"speeds": harness.alternate(variants, seeds, part)}


def show(results: harness.Result) -> list[str]:
    """Write a table of start-ups, one of speeds, and the machines."""
    rows, starts, machines = [], [], []
    for part, result in results.items():
        machines.append(f"- {part}: `{result['command']}` on {harness.machine(result)}")
        for moment in ("begins", "finished") if part == "startup" else ():
            values = [each[moment] for each in result["starts"]]
            starts.append(
                f"{moment} | {median(values):.2f} | {min(values):.2f} | {max(values):.2f}"
            )
        for name, speeds in result.get("speeds", {}).items():
            found = harness.ratios(speeds, [*result["speeds"].values()][-1])
            pairs = harness.each(found["of_pairs"], ".3f")
            cells = [part, name, f"{median(speeds):,.0f}", f"{found['of_medians']:.3f}", pairs]
            rows.append(" | ".join(cells))
    return [
        f"Seconds from `python main.py {START}`:",
        harness.table("first iteration | median | min | max", starts),
        "Speeds, and their ratios to the last variant of each part:",
        harness.table("part | variant | steps/s, median | ratio of medians | each pair", rows),
        "\n".join(machines),
    ]


def main() -> None:
    parser = harness.make_parser(__doc__, repetitions=5, steps=409_600)
    parser.add_argument("parts", nargs="*", metavar="PART", help="beginnings of them; all if none")
    given = parser.parse_args()
    parts = [part for part in ("startup", *PARTS) if part.startswith(tuple(given.parts) or "")]
    if not parts:
        parser.error(f"give some of startup, {', '.join(PARTS)}")
    results = harness.read_json(RESULTS)
    about = harness.describe("tensorboard")
    for part in parts:
        results[part] = {**about, **measure(part, given.repetitions, given.steps)}
        harness.write_json(RESULTS, results)
    harness.write_page("overheads.md", __doc__, *show(results))


if __name__ == "__main__":
    main()
