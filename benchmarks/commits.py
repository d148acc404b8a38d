"""Speed of this checkout beside another commit: python -m benchmarks.commits --base=COMMIT
[--repetitions=5]

Trains by main.py of both in turn, the order reversed each time, with the same flags and seed: the
same work, if both compute the same bits, which is checked by their metrics. The other commit is
checked out into a temporary folder. The training speed is in environment steps per second from the
end of the first iteration to the end of the last; the start-up is what passes from the command to
the beginning of the first iteration. On a machine whose speed changes from one second to the next,
take the "undisturbed" speed: of each phase of each iteration, which does the same work in all runs
of both, the least time of all repetitions counts.

Two workers; LunarLander and CartPole with 8 environments x 128 steps and the default network,
HalfCheetah the same with layers of 256 units, Pong from pixels with the CNN. A ratio above 1 is in
favour of this checkout for speeds, below 1 for the start-up. The machine should have nothing else
to do. Writes results/commits/README.md and commits.json.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import harness

SAME = f"{harness.QUIET} --num_workers=2 --seed=1"
VECTORS = f"{SAME} --preset=none --num_envs=8 --num_steps=128"
PIXELS = f"{SAME} --model=cnn --end_on_life_loss=True --clip_rewards=True"
# Before anything is measured: a new checkout has to compile its modules once.
WARM_UP = f"--env_name=CartPole-v1 {VECTORS} --total_steps=2048"
RUNS = {
    "LunarLander-v3": f"{VECTORS} --total_steps=204800",
    "CartPole-v1": f"{VECTORS} --total_steps=409600",
    "HalfCheetah-v5": f"{VECTORS} --hidden_size=256 --total_steps=40960",
    "PongNoFrameskip-v4": f"{PIXELS} --total_steps=10240",
}
MEASURES = {"steps_per_second": ",.0f", "startup_seconds": ".2f"}


def undisturbed_speed(runs: Sequence[harness.Run]) -> float:
    """Return steps per second if each phase of each iteration took the least time of all runs."""
    step = runs[0].column("step")
    times = np.array([phase_times(run) for run in runs])  # (runs, phases, iterations)
    return (step[-1] - step[0]) / times.min(axis=0).sum()


def phase_times(run: harness.Run) -> np.ndarray:
    """Return the seconds of all iterations after the first: collecting, learning and the rest."""
    phases = [run.column(f"seconds_{phase}")[1:] for phase in ("collecting", "learning")]
    return np.array([*phases, np.diff(run.column("seconds")) - np.sum(phases, axis=0)])


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


def train(flags: str, root: Path) -> harness.Run:
    """Train by the main.py of a checkout."""
    return harness.train(flags, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})


def same_metrics(runs: Sequence[harness.Run]) -> bool:
    """Compare all metrics but times that every run has."""
    tables = [harness.without_times(run.rows) for run in runs]
    names = set.intersection(*(set(rows[0]) for rows in tables))
    common = [[{name: row[name] for name in names} for row in rows] for rows in tables]
    return all(rows == common[0] for rows in common)


def measure(name: str, roots: dict[str, Path], repetitions: int, more: str) -> harness.Result:
    """Train in turn here and there; return both measures of all runs, and their ratios."""
    flags = f"--env_name={name} {RUNS[name]} {more}"
    runs: dict[Path, list[harness.Run]] = {root: [] for root in roots.values()}

    def run_once(root: Path, _: int) -> dict[str, float]:
        run = train(flags, root)
        runs[root].append(run)
        return {measure: getattr(run, measure) for measure in MEASURES}

    variants = {kind: partial(run_once, root) for kind, root in roots.items()}
    found = harness.alternate(variants, range(repetitions), name)
    here, base = (undisturbed_speed(runs[root]) for root in roots.values())
    result: harness.Result = {
        "flags": flags,
        "same_metrics": same_metrics([*chain(*runs.values())]),
        "undisturbed": {"here": here, "base": base, "ratio": here / base},
    }
    for measure in MEASURES:
        values = {kind: [run[measure] for run in found[kind]] for kind in roots}
        result[measure] = {**values, **harness.ratios(values["here"], values["base"])}
    return result


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


def show_undisturbed(runs: dict[str, harness.Result]) -> str:
    rows = []
    for name, result in runs.items():
        found = result["undisturbed"]
        rows.append(f"{name} | {found['here']:,.0f} | {found['base']:,.0f} | {found['ratio']:.3f}")
    return harness.table("undisturbed steps per second | here | base | ratio", rows)


def main() -> None:
    parser = harness.make_parser(__doc__, repetitions=5, envs=",".join(RUNS))
    parser.add_argument("--base", required=True, help="the commit to compare with")
    parser.add_argument("--flags", default="", help="more flags of main.py, for both")
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
            result["runs"][name] = measure(name, roots, given.repetitions, given.flags)
    harness.write_json("commits/commits.json", result)
    medians = f"Medians of {given.repetitions}; base is {base}."
    tables = [show(measure, result["runs"]) for measure in MEASURES]
    tables.append(show_undisturbed(result["runs"]))
    harness.write_page("commits/README.md", __doc__, medians, *tables, result=result)


if __name__ == "__main__":
    main()
