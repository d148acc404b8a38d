"""Speed of this checkout beside another commit: python -m benchmarks.commits --base=COMMIT
[--repetitions=5]

Trains by main.py of both in turn, the order reversed each time, with the same flags and seed: the
same work, if both compute the same bits, which is checked by their metrics. The other commit is
checked out into a temporary folder. The training speed is in environment steps per second from the
end of the first iteration to the end of the last; the start-up is what passes from the command to
the beginning of the first iteration. Two workers; LunarLander and CartPole with 8 environments x
128 steps and the default network, HalfCheetah the same with layers of 256 units, Pong from pixels
with the CNN, EnvPool's LunarLander with 64. A ratio above 1 is in favour of this checkout for the
speed, below 1 for the start-up. The machine should have nothing else to do. Writes results/commits/
README.md and commits.json.

--beside: both train at once instead, without workers, each on a core of its own, which they
exchange each half second: on a machine whose cores change their speed from one second to the next,
both are slowed down by the same. Once more with the other one started first; the ratio of a
repetition is the geometric mean of the two. Counted is the time in which both train, since who is
alone on the machine is faster. Adds to results/commits/beside.md and beside.json, where repetitions
of the same two commits on the same processor are averaged, whenever they were measured.
"""

import math
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from threading import Event

import numpy as np

from benchmarks import harness

BESIDE = "commits/beside.json"  # by run and commits
SAME = f"{harness.QUIET} --num_workers=2 --seed=1"
VECTORS = f"{SAME} --preset=none --num_envs=8 --num_steps=128"
MANY = f"{SAME} --preset=none --num_envs=64 --num_steps=128"
PIXELS = f"{SAME} --model=cnn --end_on_life_loss=True --clip_rewards=True"
# Before anything is measured: a new checkout has to compile its modules once.
WARM_UP = f"--env_name=CartPole-v1 {VECTORS} --total_steps=2048"
RUNS = {
    "LunarLander-v3": f"{VECTORS} --total_steps=204800",
    "CartPole-v1": f"{VECTORS} --total_steps=409600",
    "HalfCheetah-v5": f"{VECTORS} --hidden_size=256 --total_steps=40960",
    "PongNoFrameskip-v4": f"{PIXELS} --total_steps=10240",
    "EnvPool/LunarLander-v3": f"{MANY} --total_steps=409600",
}
EXCHANGE_SECONDS = 0.5
MEASURES = {"steps_per_second": ",.0f", "startup_seconds": ".2f"}


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        worktree = ["git", "-C", str(harness.ROOT), "worktree"]
        add = ["add", "--quiet", "--detach", str(tree), commit]
        subprocess.run([*worktree, *add], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*worktree, "remove", "--force", str(tree)], check=True)


def train(flags: str, root: Path, program: Sequence[str] = harness.MAIN) -> harness.Run:
    """Train by the main.py of a checkout, whose modules are compiled once, as a user's are."""
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": ""}
    return harness.train(flags, cwd=root, env=env, program=program)


def same_metrics(runs: Sequence[harness.Run]) -> bool:
    """Compare all metrics but times that every run has."""
    tables = [harness.without_times(run.rows) for run in runs]
    names = set.intersection(*(set(rows[0]) for rows in tables))
    common = [[{name: row[name] for name in names} for row in rows] for rows in tables]
    return all(rows == common[0] for rows in common)


def measure(name: str, roots: dict[str, Path], repetitions: int, more: str) -> harness.Result:
    """Train in turn here and there; return both measures of all runs, and their ratios."""
    flags = f"--env_name={name} {RUNS[name]} {more}"
    runs: list[harness.Run] = []

    def run_once(root: Path, _: int) -> dict[str, float]:
        runs.append(train(flags, root))
        return {measure: getattr(runs[-1], measure) for measure in MEASURES}

    variants = {kind: partial(run_once, root) for kind, root in roots.items()}
    found = harness.alternate(variants, range(repetitions), name)
    result: harness.Result = {"flags": flags, "same_metrics": same_metrics(runs)}
    for measure in MEASURES:
        values = {kind: [run[measure] for run in found[kind]] for kind in roots}
        result[measure] = {**values, **harness.ratios(values["here"], values["base"])}
    return result


def steps_together(runs: Sequence[harness.Run]) -> list[float]:
    """Count the steps of each run between the end of the last first iteration and the first end."""
    times = []
    for run in runs:
        seconds = np.array(run.column("seconds"))
        times.append(run.first_row_at + seconds - seconds[0])
    ends = [max(time[0] for time in times), min(time[-1] for time in times)]
    columns = (run.column("step") for run in runs)
    return [
        float(np.diff(np.interp(ends, time, steps))[0])
        for time, steps in zip(times, columns, strict=True)
    ]


def exchange_cores(cores: Sequence[int], done: Event) -> None:
    """Give the processes that this one has started each other's core, again and again."""
    while not done.wait(EXCHANGE_SECONDS):
        cores = cores[::-1]
        with suppress(OSError):  # one has just ended
            started = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
            processes = sorted(map(int, " ".join(started).split()))
            for process, core in zip(processes, cores, strict=False):
                for thread in Path(f"/proc/{process}/task").iterdir():
                    os.sched_setaffinity(int(thread.name), {core})


def train_together(flags: str, roots: Sequence[Path], cores: Sequence[int]) -> list[harness.Run]:
    """Train by the main.py of two checkouts at once, on two cores that they exchange."""

    def train_on(root: Path, core: int) -> harness.Run:
        program = ("taskset", "--cpu-list", str(core), *harness.MAIN)
        return train(flags, root, program)

    done = Event()
    with ThreadPoolExecutor(3) as threads:
        exchanging = threads.submit(exchange_cores, cores, done)
        try:
            runs = list(threads.map(train_on, roots, cores))
        finally:
            done.set()
        exchanging.result()  # raises what it has raised
    return runs


def measure_beside(
    name: str, roots: dict[str, Path], repetitions: int, more: str
) -> harness.Result:
    """Train here and there at once; return the logarithms of the ratios of speeds, here to base."""
    flags = f"--env_name={name} {RUNS[name]} --num_workers=0 {more}"
    here, base = roots["here"], roots["base"]
    logarithms = []
    cores = sorted(os.sched_getaffinity(0))[:2]
    for count in range(1, repetitions + 1):
        of_here, of_base = steps_together(train_together(flags, [here, base], cores))
        again_base, again_here = steps_together(train_together(flags, [base, here], cores))
        logarithms.append(math.log(of_here * again_here / (of_base * again_base)) / 2)
        print(f"{name}, {count} of {repetitions}: {math.exp(logarithms[-1]):.3f}", flush=True)
    return {"flags": flags, "logarithms": logarithms}


def add_beside(result: harness.Result) -> None:
    """Add the ratios of a measurement to those before it, and write a page of all."""
    known = harness.read_json(BESIDE)
    for name, run in result.pop("runs").items():
        commits = f"{name}, {result['commit']} to {result['base']}, {result['cpu']}"
        before = known.get(commits, {"logarithms": []})["logarithms"]
        known[commits] = {**result, **run, "logarithms": [*before, *run["logarithms"]]}
    harness.write_json(BESIDE, known)
    harness.write_page("commits/beside.md", __doc__, show_beside(known))


def show_beside(known: dict[str, harness.Result]) -> str:
    """Write a table of the ratios, with standard errors of their means."""
    rows = []
    for commits, result in known.items():
        found = result["logarithms"]
        error = f"{stdev(found) / math.sqrt(len(found)):.3f}" if len(found) > 1 else ""
        ratios = [*map(math.exp, found)]
        cells = [commits, f"{math.exp(fmean(found)):.3f}", error, f"{median(ratios):.3f}"]
        cells.append(harness.each(ratios, ".3f"))
        rows.append(" | ".join(cells))
    head = "run, commits, processor | ratio | standard error | median | each repetition"
    return harness.table(head, rows)


def show(measure: str, runs: dict[str, harness.Result]) -> str:
    """Write a table of one measure."""
    form = MEASURES[measure]
    rows = []
    for name, result in runs.items():
        found = result[measure]
        medians = " | ".join(f"{median(found[kind]):{form}}" for kind in ("here", "base"))
        pairs = harness.each(found["of_pairs"], ".3f")
        same = "yes" if result["same_metrics"] else "no"
        rows.append(f"{name} | {medians} | {found['of_medians']:.3f} | {pairs} | {same}")
    head = "here | base | ratio of medians | each pair | same metrics"
    return harness.table(f"{measure.replace('_', ' ')} | {head}", rows)


def main() -> None:
    parser = harness.make_parser(__doc__, repetitions=5, envs=",".join(RUNS))
    parser.add_argument("--base", required=True, help="the commit to compare with")
    parser.add_argument("--flags", default="", help="more flags of main.py, for both")
    parser.add_argument("--beside", action="store_true", help="train both at once")
    given = parser.parse_args()
    base = harness.git("rev-parse", "--short", "--verify", "--quiet", f"{given.base}^{{commit}}")
    if not base:
        parser.error(f"--base={given.base}: there is no such commit")
    result = {**harness.describe("ale-py"), "base": base, "runs": {}}
    with checkout(base) as tree:
        roots = {"here": harness.ROOT, "base": tree}
        for root in roots.values():
            train(WARM_UP, root)
        for name in given.envs.split(","):
            run = measure_beside if given.beside else measure
            result["runs"][name] = run(name, roots, given.repetitions, given.flags)
    if given.beside:
        add_beside(result)
        return
    harness.write_json("commits/commits.json", result)
    medians = f"Medians of {given.repetitions}; base is {base}."
    tables = [show(measure, result["runs"]) for measure in MEASURES]
    harness.write_page("commits/README.md", __doc__, medians, *tables, result=result)


if __name__ == "__main__":
    main()
