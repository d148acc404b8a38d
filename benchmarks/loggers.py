"""What logging costs: python -m benchmarks.loggers [--repetitions=5] [--steps=409600]

Trains LunarLander by its tuned preset, in turn without any logger but metrics.csv, which is always written; with the
console and TensorBoard; and with histograms too, every 10 iterations. Measured are environment steps per second from
the end of the first iteration to the end of the last, in fresh processes with the same seeds. The machine should have
nothing else to do. Writes results/logging/loggers.json and README.md.
"""

import json
from statistics import median
from typing import Any

from benchmarks.common import ROOT
from benchmarks.price import begin, heading, run

RESULTS = ROOT / "results" / "logging"
KINDS = {
    "none": ("--logger=none",),
    "console, TensorBoard": ("--logger=console,tensorboard", "--histogram_every=none"),
    "and histograms": ("--logger=console,tensorboard",),
}
WANTED = {"console, TensorBoard": 0.95, "and histograms": 0.9}


def table(result: dict[str, Any]) -> str:
    lines = [
        *heading(__doc__, result),
        "| LunarLander-v3 | steps/s | as a share of none | wanted | each |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind, speeds in result["runs"].items():
        shares = ", ".join(
            f"{x / y:.3f}" for x, y in zip(speeds, result["runs"]["none"], strict=True)
        )
        share = median(speeds) / median(result["runs"]["none"])
        lines.append(
            f"| {kind} | {median(speeds):,.0f} | {share:.3f} | {WANTED.get(kind, '')} | {shares} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    given, result = begin(__doc__, "tensorboard")
    speeds = result["runs"] = {kind: [] for kind in KINDS}
    for seed in range(1, given.repetitions + 1):
        for kind in [*KINDS][:: 1 if seed % 2 else -1]:  # none is always the first
            speeds[kind].append(run(KINDS[kind], given.steps, seed, is_bare=False))
            print(
                f"{seed} of {given.repetitions}, {kind}: {speeds[kind][-1]:,.0f} steps/s",
                flush=True,
            )
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "loggers.json").write_text(json.dumps(result, indent=2) + "\n")
    (RESULTS / "README.md").write_text(table(result))
    print(f"\n{table(result)}")


if __name__ == "__main__":
    main()
