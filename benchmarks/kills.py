"""Runs killed by kill -9 and resumed: python -m benchmarks.kills [--runs=14] [--loaded]
[--only=CartPole,lstm] [--minutes=60] [--quick]

Runs of main.py, two at a time, are killed at random moments, some of them twice, and resumed. Each
must end with the same last checkpoint as a run that nobody has killed, bit by bit but for seconds
and flags that the commands do not share, and the same rows in metrics.csv, but for seconds. With
--loaded, half of them share the machine with a training on each core. Writes results/kills.md;
folders of runs that ended otherwise are kept."""

import ctypes
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import harness

NAME = "kills"
PR_SET_PDEATHSIG = 1  # of linux/prctl.h
SIDE_BY_SIDE = 2
MAX_ATTEMPTS = 10  # to kill a run when it has a checkpoint and still goes on
EVERY = {"logger": "none", "eval_episodes": 2, "checkpoint_every": 2}
SMALL = {"num_envs": 4, "num_steps": 32, "num_minibatches": 2}
CARTPOLE = {"env_name": "CartPole-v1", "total_steps": 30 * 1024}
LANDER = {"env_name": "LunarLander-v3", **SMALL, "total_steps": 60 * 128}
PONG = {"env_name": "PongNoFrameskip-v4", **SMALL, "total_steps": 10 * 128, "eval_episodes": 0}
HEAVIER = "benchmarks.parts.callbacks:Heavier"
RUNS: dict[str, dict[str, Any]] = {
    "CartPole": CARTPOLE,
    "LunarLander": LANDER,
    "Pong": PONG,
    "learner": {**LANDER, "inference": "learner"},
    "curriculum": {**CARTPOLE, "callback": HEAVIER},
    "lstm": {**CARTPOLE, "model": "lstm", "total_steps": 16 * 1024},
}
LOAD = {"env_name": "LunarLander-v3", "num_workers": 0, "total_steps": 10**12, **harness.QUIET}
COMMAND = ("run_dir", "resume", "preset")  # settings that a resumed run has otherwise


class Pace(NamedTuple):
    """How long a run takes: seconds until its first checkpoint and its end, and iterations."""

    start: float
    end: float
    iterations: int


def die_with_parent() -> None:
    """Have this process killed when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(flags: harness.Flags, **options: Any) -> subprocess.Popen[str]:
    """Start main.py in a group of processes of its own. options: of subprocess.Popen."""
    return subprocess.Popen(
        [*harness.MAIN, *harness.command_of(flags)],
        cwd=harness.ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def last_of(run: Path) -> Path:
    return run / "checkpoints" / "last.safetensors"


def trained(run: Path) -> tuple[str, harness.Rows]:
    """Return what kills must not change: a digest of the last checkpoint, and the metrics."""
    from ppo.checkpoint import load

    state = load(last_of(run))
    del state["seconds"]
    state["config"] = {name: x for name, x in state["config"].items() if name not in COMMAND}
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        is_array = hasattr(value, "tobytes")
        digest.update(name.encode())
        digest.update(value.tobytes() if is_array else json.dumps(value, sort_keys=True).encode())
    return digest.hexdigest(), harness.without_times(harness.read_rows(run))


def uninterrupted(flags: harness.Flags, run: Path) -> Pace:
    """Time a run that nobody kills. Raises SystemExit if it fails."""
    begin = time.monotonic()
    first = 0.0
    process = start({**flags, "run_dir": run})
    while process.poll() is None:
        if not first and last_of(run).exists():
            first = time.monotonic() - begin
        time.sleep(0.01)
    if process.returncode:
        raise SystemExit(f"{flags} ended with exit code {process.returncode}")
    return Pace(first, time.monotonic() - begin, len(harness.read_rows(run)))


def kill_at(process: subprocess.Popen[str], run: Path, moment: float, pace: Pace) -> None:
    """Kill a run at a moment, in iterations, or as it starts if it is resumed beyond that."""
    seconds = (pace.end - pace.start) / pace.iterations
    if len(harness.read_rows(run)) > moment:
        seconds = pace.start
    while process.poll() is None:
        if len(harness.read_rows(run)) >= int(moment) and last_of(run).exists():
            break
        time.sleep(0.005)
    with suppress(subprocess.TimeoutExpired):
        process.wait(moment % 1 * seconds)
    process.kill()


def killed_run(flags: harness.Flags, folder: Path, pace: Pace, number: int) -> harness.Result:
    """Kill a run once or twice, resume it to its end, and compare it with folder/whole."""
    generator = random.Random(f"{flags} {number}")
    kills = generator.choice((1, 1, 2))
    moments: list[float] = []
    result: harness.Result = {"redone": 0, "stderr": ""}
    run = folder / f"{number}-0"
    while len(moments) < kills and result["redone"] < MAX_ATTEMPTS:
        moment = generator.uniform(0, pace.iterations)
        process = start({**flags, "resume" if moments else "run_dir": run})
        kill_at(process, run, moment, pace)
        result["stderr"] += process.communicate()[1]
        if process.returncode == -signal.SIGKILL and last_of(run).exists():
            moments.append(round(moment, 2))
        elif process.returncode in (0, -signal.SIGKILL):  # the kill came too late, or too early
            result["redone"] += 1
            moments = []
            run = folder / f"{number}-{result['redone']}"
        else:
            break
    process = start({**flags, "resume": run})
    result["stderr"] += process.communicate()[1]
    result |= {"exit_code": process.returncode, "killed_at": moments}
    result["processes_left"] = not ends_within(5.0, process.pid)
    digest, rows = trained(folder / "whole")
    own_digest, own_rows = trained(run) if last_of(run).exists() else ("", [])
    result |= {"same_checkpoint": own_digest == digest, "same_rows": own_rows == rows}
    if not is_right(result):
        result["folder"] = str(run)
    return result


def is_right(result: harness.Result) -> bool:
    is_same = bool(result["same_checkpoint"] and result["same_rows"])
    return is_same and not result["exit_code"] and not result["processes_left"]


def ends_within(seconds: float, group: int) -> bool:
    """Wait until no process of a group is left; return whether that came in so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@contextmanager
def load_on_machine(folder: Path) -> Iterator[None]:
    """Train on each core, without end, until the context is left."""
    processes = [
        start({**LOAD, "run_dir": folder / f"load-{x}"}, preexec_fn=die_with_parent)
        for x in range(harness.num_cores())
    ]
    try:
        yield
        if any(process.poll() is not None for process in processes):
            raise SystemExit("what loads the machine has ended by itself")
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def campaign(name: str, runs: int, is_loaded: bool, minutes: float) -> harness.Result:
    """Kill and resume runs of one kind. No run begins after some minutes."""
    folder = Path(tempfile.mkdtemp(prefix=f"kills-{name}-"))
    flags = {**EVERY, **RUNS[name]}
    pace = uninterrupted(flags, folder / "whole")
    deadline = time.monotonic() + 60 * minutes

    def kill_all(numbers: range) -> list[harness.Result]:
        def kill(number: int) -> harness.Result | None:
            is_late = time.monotonic() > deadline
            return None if is_late else killed_run(flags, folder, pace, number)

        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            return [result for result in pool.map(kill, numbers) if result]

    quiet = (runs + 1) // 2 if is_loaded else runs
    found = {"quiet": kill_all(range(quiet))}
    if is_loaded:
        with load_on_machine(folder):
            found["loaded"] = kill_all(range(quiet, runs))
    if all(is_right(x) for results in found.values() for x in results):
        shutil.rmtree(folder)
    return {"iterations": pace.iterations, "runs": found}


def show(results: harness.Result) -> str:
    rows = []
    for name, result in results.items():
        for machine, runs in result["runs"].items():
            kills = sum(len(run["killed_at"]) for run in runs)
            right = sum(map(is_right, runs))
            rows.append(
                f"{name} | {machine} | {result['iterations']} | {len(runs)} | {kills} | {right}"
            )
    head = "run | machine | iterations | runs | kills | same checkpoint and metrics"
    return harness.table(head, rows)


def main() -> None:
    parser = harness.make_parser(__doc__, runs=14, only="", minutes=60.0)
    parser.add_argument("--loaded", action="store_true", help="half of them on a loaded machine")
    given = parser.parse_args()
    names = harness.chosen(parser, given.only, RUNS)
    if given.quick:
        names, given.runs = ["LunarLander"], 1
    results = {} if given.quick else harness.read(NAME)
    for name in names:
        about = harness.describe()
        results[name] = {**about, **campaign(name, given.runs, given.loaded, given.minutes)}
        for runs in results[name]["runs"].values():
            for run in [x for x in runs if not is_right(x)]:
                print(f"{name}: {json.dumps(run, indent=2)}", flush=True)
        if not given.quick:
            harness.write(NAME, __doc__, results, show(results))
    print(f"\n{show(results)}")


if __name__ == "__main__":
    main()
