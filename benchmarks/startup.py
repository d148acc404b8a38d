"""Seconds until training is under way: python -m benchmarks.startup [--repetitions=5]

Measured from starting the command that a user would give, its output piped, until its first iteration begins and
until it is finished, when its row is in metrics.csv (looked for every 10 ms; the process is then terminated). The
beginning is what the row says: as long before it as its collecting and learning took. Worker processes, which start
before it, may still be getting ready then. Writes results/startup.json and a table, results/startup.md.
"""

import argparse
import csv
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

COMMAND = ["main.py", "--env_name=LunarLander-v2", "--model=mlp"]
MOMENTS = ("begins", "finished")


def start_once() -> dict[str, Any]:
    """Seconds until iteration 1 begins and until it is finished, and the environment steps that it takes."""
    with tempfile.TemporaryDirectory() as folder:
        metrics, command = (
            Path(folder, "metrics.csv"),
            [sys.executable, *COMMAND, f"--run_dir={folder}"],
        )
        start = time.perf_counter()
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE
        ) as process:  # errors stay on the screen
            while (
                not metrics.exists() or metrics.read_text().count("\n") < 2
            ):  # the names, and the first row
                if process.poll() is not None:
                    raise SystemExit(
                        f"{shlex.join(command)} ended with exit code {process.returncode}"
                    )
                time.sleep(0.01)
            finished = time.perf_counter() - start
            process.terminate()
            process.communicate()
        row = next(csv.DictReader(metrics.read_text().splitlines()))
    took = float(row["seconds_collecting"]) + float(row["seconds_learning"])
    return {"begins": finished - took, "finished": finished, "steps": int(row["step"])}


def table(result: dict[str, Any]) -> str:
    text = "# Seconds until training is under way\n\nWritten by `{command}`:\nfrom starting `{ours}` until\n"
    text += (
        "its first iteration, of {steps:,} steps, begins and is finished. {cpu}, {cores} cores.\n\n"
    )
    text = (
        text.format(**result)
        + "| first iteration | median | min | max |\n| --- | --- | --- | --- |\n"
    )
    return text + "".join(
        "| {0} | {median:.2f} | {min:.2f} | {max:.2f} |\n".format(m, **result[m]) for m in MOMENTS
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    about, starts = (
        about_machine("torch", "gymnasium", "numpy"),
        [start_once() for _ in range(repetitions)],
    )
    command = f"python -m benchmarks.startup --repetitions={repetitions}"
    result = {
        "command": command,
        "ours": shlex.join(["python", *COMMAND]),
        "steps": starts[0]["steps"],
        **about,
    }
    for moment in MOMENTS:
        values = [start[moment] for start in starts]
        result[moment] = {
            "median": median(values),
            "min": min(values),
            "max": max(values),
            "values": values,
        }
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results" / "startup.json").write_text(json.dumps(result, indent=2) + "\n")
    (ROOT / "results" / "startup.md").write_text(table(result))
    print(table(result))


if __name__ == "__main__":
    main()
