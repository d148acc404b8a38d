"""The harness of all benchmarks: command line, machine, repetitions, runs of main.py, and what is
written of them.

A benchmark's docstring is its help and the heading of its results: "Title: python -m
benchmarks.name [--flags]", an empty line, and what is measured. This file imports nothing of the
trainer, so that it can run any commit of it.
"""

import argparse
import csv
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar
from unittest import mock

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
TRAINER = ("main.py", "ppo", "envs", "models")  # what is measured
MAIN: Sequence[str] = (sys.executable, "main.py")
QUIET = "--eval_episodes=0 --logger=none --report=False"
# Columns of metrics.csv that two runs of the same work need not share.
PHASES = {"seconds_collecting", "seconds_learning", "seconds_exchanging"}
TIMES = {"seconds", "steps_per_second", *PHASES}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
Result = dict[str, Any]
T = TypeVar("T")


class Run(NamedTuple):
    """What a run of main.py left, and how long its process took."""

    rows: list[dict[str, str]]  # of metrics.csv
    summary: Result  # of summary.json; empty if the run did not end by itself
    seconds: float = 0.0  # of the whole process
    seconds_to_first_row: float = 0.0
    first_row_at: float = 0.0  # time.perf_counter()

    def column(self, name: str) -> list[float]:
        return [float(row[name]) for row in self.rows]

    @property
    def steps_per_second(self) -> float:
        """Measure from the end of the first iteration, in which workers get ready, to the end."""
        step, seconds = self.column("step"), self.column("seconds")
        return (step[-1] - step[0]) / (seconds[-1] - seconds[0])

    @property
    def startup_seconds(self) -> float:
        """Measure from the command to the beginning of the first iteration."""
        first = self.rows[0]
        took = float(first["seconds_collecting"]) + float(first["seconds_learning"])
        return self.seconds_to_first_row - took


def make_parser(about: str, **defaults: int | float | str) -> argparse.ArgumentParser:
    """Make a benchmark's parser: its docstring is the help, each default a flag of that type."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module_name()}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, default in defaults.items():
        parser.add_argument(
            f"--{name}", type=type(default), default=default, help=f"default: {default}"
        )
    return parser


def module_name() -> str:
    return f"benchmarks.{Path(sys.argv[0]).stem}"


def command_line() -> str:
    return shlex.join(["python", "-m", module_name(), *sys.argv[1:]])


def num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def git(*arguments: str, cwd: Path = ROOT) -> str:
    """Return what git prints; empty if it fails."""
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True)
    return done.stdout.strip()


def commit() -> str | None:
    """Return the last commit that changed the trainer, so that results are of one release whatever
    is written of them meanwhile; -dirty with changes or new files outside results/."""
    changes = git("status", "--porcelain", "--", ".", ":!results")
    name = git("log", "-1", "--format=%h", "--", *TRAINER)
    return f"{name}-dirty" if name and changes else name or None


def processor() -> str:
    """Name the processor, and AVX-512 if it has it: clouds give several kinds the same name."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    model = re.search(r"model name\s*: (.*)", text)
    name = model[1] if model else platform.machine()
    return f"{name} with AVX-512" if " avx512f " in text else name


def describe_machine(*packages: str) -> Result:
    """Describe what is measured on: hardware, how busy it is, versions, and the commit."""
    versions = {
        name: importlib.metadata.version(name) for name in ("torch", "gymnasium", *packages)
    }
    return {
        "cpu": processor(),
        "cores": num_cores(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), **versions},
        "commit": commit(),
    }


def describe(*packages: str) -> Result:
    """Describe a measurement before it begins: the command, and the machine."""
    return {"command": command_line(), **describe_machine("numpy", *packages)}


def alternate(
    variants: Mapping[str, Callable[[int], T]], seeds: Sequence[int], about: str = ""
) -> dict[str, list[T]]:
    """Run all variants with each seed, every second time in reversed order; return the results."""
    found: dict[str, list[T]] = {name: [] for name in variants}
    names = list(variants)
    for count, seed in enumerate(seeds, 1):
        for name in names:
            found[name].append(variants[name](seed))
            which = ", ".join(part for part in (about, name) if part)
            print(f"{which}, {count} of {len(seeds)}: {_shown(found[name][-1])}", flush=True)
        names.reverse()
    return found


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(part)}" for name, part in value.items())
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def ratios(values: list[float], others: list[float]) -> Result:
    """Divide values by others: the medians, and each pair."""
    pairs = [value / other for value, other in zip(values, others, strict=True)]
    return {"of_medians": median(values) / median(others), "of_pairs": pairs}


def train(flags: str, **options: Any) -> Run:
    """Train as train_in does, in a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        return train_in(Path(folder, "run"), flags, **options)


def train_in(
    run_dir: Path,
    flags: str,
    *,
    program: Sequence[str] = MAIN,
    **options: Any,
) -> Run:
    """Run main.py in a fresh process and read what it leaves in its folder.

    options: of subprocess.Popen. Raises SystemExit if it fails.
    """
    command = [*program, *shlex.split(flags), f"--run_dir={run_dir}"]
    start = time.perf_counter()
    with subprocess.Popen(
        command, **{"cwd": ROOT, "stdout": subprocess.DEVNULL, **options}
    ) as process:
        while process.poll() is None and not num_rows(run_dir):
            time.sleep(0.01)
        first_row_at = time.perf_counter()
        process.wait()
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with exit code {process.returncode}")
    return read_run(run_dir)._replace(
        seconds=seconds, seconds_to_first_row=first_row_at - start, first_row_at=first_row_at
    )


def read_run(run_dir: Path) -> Run:
    summary = run_dir / "summary.json"
    return Run(read_rows(run_dir), json.loads(summary.read_text()) if summary.exists() else {})


def read_rows(run_dir: Path) -> list[dict[str, str]]:
    """Read metrics.csv, but for a last line that is being written; empty if there is none yet."""
    path = run_dir / "metrics.csv"
    if not path.exists():
        return []
    text = path.read_text()
    return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))


def num_rows(run_dir: Path) -> int:
    """Count the iterations in metrics.csv."""
    path = run_dir / "metrics.csv"
    return max(0, path.read_text().count("\n") - 1) if path.exists() else 0


def without_times(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Leave out of metrics what differs between two runs of the same work."""
    return [{name: x for name, x in row.items() if name not in TIMES} for row in rows]


def resident(root: int) -> float:
    """Sum the MiB of a process and all its descendants; pages that several share count once."""
    processes = [root]
    total = 0
    for process in processes:
        folder = Path(f"/proc/{process}")
        try:
            processes += map(int, (folder / f"task/{process}/children").read_text().split())
            total += int((folder / "smaps_rollup").read_text().split("Pss:")[1].split()[0])
        except (OSError, IndexError):
            continue  # it has just ended
    return total / 1024


def peak_memory(*command: str) -> float:
    """Run a command of Python, its output dropped; return its largest memory in MiB."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL
    ) as process:
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(0.1)
    assert process.returncode == 0
    return peak


def in_fresh_process(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a process of its own, where numpy has one thread, as in a worker."""
    with (
        mock.patch.dict(os.environ, ONE_THREAD),
        ProcessPoolExecutor(1, get_context("spawn")) as process,
    ):
        return process.submit(function, *arguments).result()


def result_path(name: str) -> Path:
    """Return the path of a file in results/, whose folder is made."""
    path = RESULTS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_json(name: str, result: Result) -> None:
    """Write a file in results/."""
    result_path(name).write_text(json.dumps(result, indent=2) + "\n")


def save_figure(name: str, figure: Any) -> None:
    """Write a figure of matplotlib in results/."""
    figure.savefig(result_path(name), dpi=100, bbox_inches="tight")


def read_json(name: str) -> Result:
    """Read a file in results/; empty if there is none."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else {}


def write_page(name: str, about: str, *parts: str, result: Result | None = None) -> None:
    """Write a page of Markdown in results/ and print it.

    about: the benchmark's docstring, which has heading and explanation; parts: what comes below;
    result: of describe; None where the parts tell on what they were measured.
    """
    by = f"Written by `python -m {module_name()}`."
    if result:
        by = f"Written by `{result['command']}` on {machine(result)}."
    explanation = about.partition("\n\n")[2].strip()
    text = "\n\n".join([f"# {about.partition(':')[0]}", by, explanation, *parts]) + "\n"
    result_path(name).write_text(text)
    print(f"\n{text}")


def machine(result: Result) -> str:
    """Say what a result was measured on."""
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    return (
        f"{result['cpu']}, {result['cores']} cores, load before {result['load_before']}, "
        f"commit {result['commit']}, {versions}"
    )


def table(head: str, rows: Iterable[str]) -> str:
    """Write a table in Markdown, of which all cells of a line are given as "a | b | c"."""
    line = " | ".join(["---"] * (head.count(" | ") + 1))
    return "\n".join(f"| {cells} |" for cells in (head, line, *rows))


def each(values: Iterable[float], form: str = ".2f") -> str:
    """Write numbers beside one another."""
    return ", ".join(f"{value:{form}}" for value in values)
