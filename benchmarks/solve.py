"""Seconds until an environment is solved: python -m benchmarks.solve [--seeds=5] [--env=LunarLander-v3] [--flags="..."]

Measured from starting the command that a user would give, with its tuned preset, its output piped, until it has ended
with an evaluation over 100 deterministic episodes; the first start after installing is slower. Writes a file for each
environment, or for --name, and a table of them all, to results/solve/. The machine should have nothing else to do."""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import ROOT, about_machine

RESULTS = ROOT / "results" / "solve"


def solve(command: list[str]) -> dict[str, float]:
    """Seconds that a run takes, the steps of its training, and the mean return of its evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, *command, f"--run_dir={folder}"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
        )
        seconds = time.perf_counter() - start
        summary = json.loads(Path(folder, "summary.json").read_text())
    return {
        "seconds": seconds,
        "steps": summary["steps"],
        "evaluation": summary["evaluation"]["mean"],
    }


def table() -> str:
    """Markdown: what the files in the results say."""
    lines = ["# Seconds until solved", "", *__doc__.split("\n")[2:], ""]
    lines += [
        "| command | seconds, median | each | steps | evaluation, median | each |",
        "| --- " * 6 + "|",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text())
        seconds, returns = (
            [run[name] for run in result["runs"]] for name in ("seconds", "evaluation")
        )
        times = f"{median(seconds):.1f} | {', '.join(f'{x:.1f}' for x in seconds)}"
        scores = f"{median(returns):.1f} | {', '.join(f'{x:.1f}' for x in returns)}"
        lines.append(
            f"| `{result['command']}` | {times} | {result['runs'][0]['steps']:,} | {scores} |"
        )
        machine = f"{result['cpu']}, {result['cores']} cores, commit {result['commit']}"
    return "\n".join([*lines, "", f"The last row was measured on {machine}."]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 1 on")
    parser.add_argument("--env", default="LunarLander-v3")
    parser.add_argument("--flags", default="", help="more flags of main.py")
    parser.add_argument("--name", help="of the file; the environment's if left out")
    given = parser.parse_args()
    if given.seeds < 1:
        parser.error("give at least one of --seeds")
    command = [
        "main.py",
        f"--env_name={given.env}",
        *shlex.split(given.flags),
        "--eval_episodes=100",
    ]
    result: dict[str, Any] = {
        "command": shlex.join(["python", *command, "--seed=SEED"]),
        "runs": [],
    }
    result |= about_machine("torch", "gymnasium", "numpy")
    for seed in range(1, given.seeds + 1):
        result["runs"].append(solve([*command, f"--seed={seed}"]))
        print(*(f"{name}: {value:,.1f}" for name, value in result["runs"][-1].items()), flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{given.name or given.env}.json").write_text(json.dumps(result, indent=2) + "\n")
    (RESULTS / "README.md").write_text(table())
    print(table())


if __name__ == "__main__":
    main()
