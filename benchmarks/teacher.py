"""Steps until a student has learned, by a teacher and from zero: python -m benchmarks.teacher
[--seeds=3] [--tasks=cartpole,reach] [--flags="..."]

cartpole: an LSTM that sees positions only, and an mlp as teacher that sees velocities, too
(examples/from_teacher.py); learned is a mean return of 475 over an evaluation of 100 episodes.
reach: a CNN that sees two cameras, and an mlp as teacher that reads the joints, trained where there
are no cameras (examples/own_project); learned is a success rate of 0.9 in the last 100 episodes.

A task's teacher is trained once, with seed 1, to the same goal; its steps are in a column of their
own. Each seed then trains three students in turn, by the same flags: from zero, by PPO with the
teacher beside it (--teacher), and by the teacher alone (--distill). "not in N" is a student that
had not learned after its N steps, and counts as N in a median, a lower bound. Writes
results/teacher/; a task that is not measured again keeps its results and its commit.
"""

import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import harness

RESULTS = "teacher/teacher.json"
WAYS = {
    "from zero": "",
    "with a teacher": "--teacher={teacher}",
    "by the teacher alone": "--teacher={teacher} --teacher_coef=1 --distill",
}


class Task(NamedTuple):
    """A teacher and a student: the flags of both, and what only those with a teacher are given."""

    folder: str
    goal: str
    teacher: str
    student: str
    parts: str = ""


TASKS = {
    "cartpole": Task(
        folder=".",
        goal="--stop_when=solved>=475",
        teacher="--env_name=examples.from_teacher:CartPole --total_steps=200000",
        student="--env_name=examples.from_teacher:CartPole --model=examples.from_teacher:Student "
        "--total_steps=400000",
    ),
    "reach": Task(
        folder="examples/own_project",
        goal="--stop_when=env/success_rate>0.9",
        teacher="--env_name=envs/my_env.py:Reach --learning_rate=1e-3 --total_steps=300000",
        student="--env_name=envs/my_env.py:CameraReach --model=models/student.py:CameraStudent "
        "--screen_size=36 --learning_rate=1e-3 --total_steps=100000",
        parts="--teacher_parts=joints",
    ),
}


def train(task: Task, folder: Path, flags: str) -> harness.Result:
    """Train to a task's goal; return after how many steps the run has stopped, and what it is."""
    run = harness.train_in(
        folder,
        f"{flags} {task.goal} --eval_episodes=100 --report=False",
        program=(sys.executable, "-m", "ppo"),
        cwd=harness.ROOT / task.folder,
        env={**os.environ, "PYTHONPATH": str(harness.ROOT)},
    )
    return {
        "steps": run.summary["steps"],
        "learned": bool(run.summary["stopped"]),
        "evaluation": run.summary["evaluation"]["mean"],
        "seconds": run.seconds,
    }


def measure(name: str, seeds: int, flags: str) -> harness.Result:
    """Train a task's teacher, and then its students."""
    task = TASKS[name]
    with tempfile.TemporaryDirectory() as folder:
        teacher = Path(folder, "teacher")
        found = train(task, teacher, f"{task.teacher} {flags} --seed=1")
        print(f"{name}, its teacher: {found}", flush=True)

        def train_student(way: str, seed: int) -> harness.Result:
            by = WAYS[way].format(teacher=teacher)
            parts = task.parts if by else ""
            where = Path(folder, f"{way}-{seed}".replace(" ", "-"))
            return train(task, where, f"{task.student} {by} {parts} {flags} --seed={seed}")

        variants = {way: partial(train_student, way) for way in WAYS}
        return {"teacher": found, **harness.alternate(variants, range(1, seeds + 1), name)}


def show_steps(run: harness.Result) -> str:
    return f"{'' if run['learned'] else 'not in '}{run['steps']:,}"


def show(name: str, result: harness.Result) -> list[str]:
    """Write a row for each way of learning a task."""
    rows = []
    for way in WAYS:
        runs = result[way]
        steps = median(run["steps"] for run in runs)
        bound = "" if all(run["learned"] for run in runs) else "at least "
        ratio = median(run["steps"] for run in result["from zero"]) / steps
        cells = [
            name,
            way,
            f"{bound}{steps:,.0f}",
            ", ".join(show_steps(run) for run in runs),
            f"{ratio:.1f}",
            harness.each((run["evaluation"] for run in runs), ",.1f"),
            harness.each((run["seconds"] for run in runs), ",.0f"),
            show_steps(result["teacher"]) if WAYS[way] else "",
            result["commit"],
        ]
        rows.append(" | ".join(cells))
    return rows


def main() -> None:
    parser = harness.make_parser(__doc__, seeds=3, tasks=",".join(TASKS), flags="")
    given = parser.parse_args()
    names = given.tasks.split(",")
    if not {*names} <= {*TASKS} or given.seeds < 1:
        parser.error(f"give at least one of --seeds, and --tasks of {', '.join(TASKS)}")
    about = harness.describe()
    result = {**about, "tasks": harness.read_json(RESULTS).get("tasks", {})}
    for name in names:
        found = measure(name, given.seeds, given.flags)
        result["tasks"][name] = {**found, "commit": about["commit"]}
        harness.write_json(RESULTS, result)
    rows = [row for name, found in result["tasks"].items() for row in show(name, found)]
    head = (
        "task | student | steps, median | each | fewer by | evaluation | seconds | "
        "teacher: steps | commit"
    )
    harness.write_page("teacher/README.md", __doc__, harness.table(head, rows), result=result)


if __name__ == "__main__":
    main()
