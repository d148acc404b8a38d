"""What all benchmarks share: command line, machine, runs of main.py, and result files.

A benchmark's docstring is its help and the heading of its results: a title, a colon, the command,
an empty line, and an explanation. Nothing of the trainer is imported here."""

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
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
SOURCE = ("main.py", "ppo", "envs", "models", "benchmarks")
MAIN = (sys.executable, "main.py")
QUIET = {"eval_episodes": 0, "logger": "none"}
TIMES = re.compile(r"seconds|_per_second")  # columns that differ between two runs of the same work
Flags = Mapping[str, Any]
Result = dict[str, Any]
Rows = list[dict[str, str]]


class Run(NamedTuple):
    """What a run of main.py has left. seconds: of the whole process."""

    rows: Rows  # of metrics.csv
    summary: Result
    evaluations: list[Result]  # with episodes
    seconds: float

    def column(self, name: str) -> list[float]:
        return [float(row[name]) for row in self.rows]

    @property
    def steps_per_second(self) -> float:
        """Measure from the end of the first iteration, in which workers start, to the end."""
        step, seconds = self.column("step"), self.column("seconds")
        return (step[-1] - step[0]) / (seconds[-1] - seconds[0])


def make_parser(about: str | None, **defaults: int | float | str) -> argparse.ArgumentParser:
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
    parser.add_argument("--quick", action="store_true", help="short runs; nothing is written")
    return parser


def module_name() -> str:
    return f"benchmarks.{Path(sys.argv[0]).stem}"


def chosen(parser: argparse.ArgumentParser, names: str, known: Iterable[str]) -> list[str]:
    """Return the names in a list with commas, or all known ones. Ends with an error if one is
    unknown."""
    found = names.split(",") if names else [*known]
    if unknown := {*found} - {*known}:
        parser.error(f"give some of {','.join(known)}, not {','.join(sorted(unknown))}")
    return found


def num_cores() -> int:
    return len(os.sched_getaffinity(0))


def thread_per_core() -> ThreadPoolExecutor:
    """Return threads whose processes keep to a core each: threads of torch on shared cores wait."""
    cores = [*os.sched_getaffinity(0)]
    return ThreadPoolExecutor(
        len(cores), initializer=lambda: os.sched_setaffinity(0, {cores.pop()})
    )


def git(*arguments: str) -> str:
    """Return what git prints; empty if it fails."""
    command = ["git", "--no-optional-locks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def describe(*packages: str) -> Result:
    """Describe what is measured: the command, the machine, its load, versions and the commit, with
    -dirty if the source was changed since."""
    cpuinfo = Path("/proc/cpuinfo")
    cpu = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    names = ("torch", "gymnasium", "numpy", *packages)
    commit = git("log", "-1", "--format=%h", "--", *SOURCE)
    return {
        "command": shlex.join(["python", "-m", module_name(), *sys.argv[1:]]),
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": num_cores(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in names},
        "commit": commit + "-dirty" * bool(git("status", "--porcelain", "--", *SOURCE)),
    }


def command_of(flags: Flags) -> list[str]:
    """Return flags as the arguments of main.py; dicts as JSON."""
    texts = {x: json.dumps(y) if isinstance(y, dict) else y for x, y in flags.items()}
    return [f"--{name}={value}" for name, value in texts.items()]


def parse_flags(text: str) -> dict[str, str]:
    """Return flags of a text such as "--gamma=0.9 --seed=1", by name."""
    pairs = [word.removeprefix("--").partition("=") for word in shlex.split(text)]
    return {name: value for name, _, value in pairs}


def train(flags: Flags, run_dir: Path | None = None, **options: Any) -> Run:
    """Run main.py in a process of its own, and read what it leaves in its folder, which is thrown
    away by default. options: of subprocess.run. Raises SystemExit if it fails."""
    if run_dir is None:
        with tempfile.TemporaryDirectory() as folder:
            return train(flags, Path(folder, "run"), **options)
    command = [*MAIN, *command_of({**flags, "run_dir": run_dir})]
    begin = time.perf_counter()
    options = {"cwd": ROOT, "stdout": subprocess.DEVNULL, **options}
    code = subprocess.run(command, **options).returncode
    seconds = time.perf_counter() - begin
    if code:
        raise SystemExit(f"{shlex.join(command)} ended with exit code {code}")
    path = run_dir / "evaluations.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    evaluations = [x for x in map(json.loads, lines) if x["returns"]]
    summary = json.loads((run_dir / "summary.json").read_text())
    return Run(read_rows(run_dir), summary, evaluations, seconds)


def read_rows(run_dir: Path) -> Rows:
    """Read metrics.csv, but for a last line that is being written; none if there is no file."""
    path = run_dir / "metrics.csv"
    text = path.read_text() if path.exists() else ""
    return [*csv.DictReader(text[: text.rfind("\n") + 1].splitlines())]


def without_times(rows: Rows) -> Rows:
    return [{name: x for name, x in row.items() if not TIMES.search(name)} for row in rows]


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, in which numpy has one thread."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_with_one_thread, function, *arguments).result()


def _with_one_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    with threadpool_limits(1):
        return function(*arguments)


def alternate(
    variants: Mapping[str, Callable[[int], Result]], seeds: Iterable[int], about: str
) -> dict[str, list[Result]]:
    """Measure all variants with each seed, every second time in reversed order."""
    found: dict[str, list[Result]] = {name: [] for name in variants}
    names = [*variants]
    for seed in seeds:
        for name in names:
            found[name].append(variants[name](seed))
            print(f"{about}, {name}, seed {seed}: {found[name][-1]}", flush=True)
        names.reverse()
    return found


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean of the middle half, of which values at its ends have a share."""
    middle = np.sort(values).repeat(4)[len(values) : -len(values)]
    return float(middle.mean())


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the interquartile mean (Agarwal et al. 2021)."""
    drawn = np.random.default_rng(0).choice(values, (2000, len(values)))
    low, high = np.quantile([interquartile_mean(x) for x in drawn], (0.025, 0.975))
    return float(low), float(high)


def table(head: str, rows: Iterable[str]) -> str:
    """Return a table in Markdown, whose lines are given as "a | b | c"."""
    line = " | ".join(["---"] * (head.count(" | ") + 1))
    return "\n".join(f"| {cells} |" for cells in (head, line, *rows))


def each(values: Iterable[float], form: str = ",.1f") -> str:
    return ", ".join(f"{value:{form}}" for value in values)


def read(name: str) -> Result:
    """Return what was measured before, by name; nothing if there are no results yet."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def write(name: str, about: str | None, results: Mapping[str, Result], text: str) -> None:
    """Write results, each with what describe() returned, to results/NAME.json, and a page to
    results/NAME.md."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n")
    head, _, explanation = (about or "").partition("\n\n")
    machines: dict[str, list[str]] = {}  # what was measured, by how it was
    for key, result in results.items():
        versions = ", ".join(f"{package} {x}" for package, x in result["versions"].items())
        how = (
            f"`{result['command']}`, commit {result['commit']}, {result['cpu']}, "
            f"{result['cores']} cores, Python {result['python']}, {versions}"
        )
        machines.setdefault(how, []).append(f"{key} (load {result['load_before']})")
    lines = [f"- {', '.join(keys)}: {how}" for how, keys in machines.items()]
    title = head.partition(":")[0]
    parts = [f"# {title}", explanation.strip(), text, "\n".join(lines)]
    (RESULTS / f"{name}.md").write_text("\n\n".join(parts) + "\n")
