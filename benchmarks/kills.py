"""What kill -9 can do to a run: python -m benchmarks.kills [--runs=22] [--loaded] [--only=NAME ...]

Two campaigns. saving: a process that does nothing but save is killed at random moments; each time
the newest checkpoint must load and be no older than the last that was reported as saved, and the
next start must clean up. resume: runs of main.py, some of which go on side by side, are killed at
random moments, a third of them twice, and resumed; each must end with the same bytes in its last
checkpoint and the same rows in metrics.csv, but for the times in them, as a run that nobody has
killed. With --loaded the second half of them goes on beside one more training for each core.
Workers that were lost are counted, since a run that loses one begins new episodes. Writes
results/reliability/kills.json and kills.md, with --only the part of these runs; the folders of runs
that ended otherwise are kept.
"""

import hashlib
import json
import multiprocessing
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
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks import harness
from ppo.callbacks.base import Callback
from ppo.run.checkpoint import LAST, load, load_newest, newest_first
from ppo.run.folder import EVENTS
from ppo.run.saving import BEST, NUM_KEPT, Checkpoints
from ppo.system.files import read_json_lines
from ppo.system.process import die_with_parent

CONFIG = {"of": "a process that only saves"}
MAX_SECONDS_OF_SAVING = 0.5  # before a process is killed
SIZES = (2**18, 2**20)  # numbers in the tensors of a checkpoint: 1 and 4 MiB
QUIET = "--eval_episodes=0 --verbose=0 --report=False"
SMALL = "--num_envs=4 --num_steps=32 --num_minibatches=2"
LANDER = "--env_name=LunarLander-v3"
RUNS = {
    "CartPole-v1": "--env_name=CartPole-v1 --num_iterations=30",
    "LunarLander-v3": f"{LANDER} --num_iterations=16",
    "PongNoFrameskip-v4": f"--env_name=PongNoFrameskip-v4 {SMALL} --num_iterations=10",
    "learner": f"{LANDER} {SMALL} --inference=learner --num_iterations=20",
    "curriculum": "--env_name=CartPole-v1 --callback=benchmarks.kills:Heavier --num_iterations=30",
    "lstm": "--env_name=CartPole-v1 --model=lstm --num_iterations=16",
}
LOAD = f"{LANDER} --num_workers=0 --total_steps=1000000000000"
RESULTS = "reliability/kills.json"
MAX_ATTEMPTS = 10  # to kill a run at a moment when it has a checkpoint and goes on


class Heavier(Callback):
    """A curriculum for CartPole: more gravity whenever the mean return has become greater."""

    def __init__(self) -> None:
        self.gravity = 9.8
        self.best = 0.0

    def on_iteration(self, run: Any) -> None:
        if (run.metrics["episode_return_mean"] or self.best) > self.best:
            self.best = run.metrics["episode_return_mean"]
            self.gravity *= 1.05
            run.set_env(gravity=self.gravity)
        run.log("gravity", self.gravity)

    def state_dict(self) -> dict[str, float]:
        return {"gravity": self.gravity, "best": self.best}

    def load_state_dict(self, state: dict[str, float]) -> None:
        vars(self).update(state)


def save_forever(folder: Path, reports: Connection) -> None:
    """Save from the newest checkpoint on, and report the step of each that is written."""
    torch.set_num_threads(1)
    with Checkpoints(folder, print) as checkpoints:
        reports.send(("leftovers", count_temporary(folder)))
        path, state = load_newest(folder, partial(print, "damaged:"))
        checkpoints.take_ownership(path, state)
        for step in range(state["step"] + 1, 10**12):
            numbers = torch.full((SIZES[step % len(SIZES)],), float(step))
            state = {"numbers": numbers, "config": CONFIG, "step": step}
            checkpoints.remember(state, is_best=step % 5 == 0)
            checkpoints.save()
            checkpoints.wait()
            if checkpoints.failure:
                reports.send(("failed", str(checkpoints.failure)))
            else:
                reports.send(("saved", step))


def count_temporary(folder: Path) -> int:
    return len(list(folder.glob(".tmp-*")))


class Saver:
    """A process that saves in a folder and is killed; what was found wrong afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last_saved = 0
        self.kills_since_removal = 0  # of old checkpoints, by a process that saved a new one
        self.wrong: list[str] = []
        self.counts = dict.fromkeys(
            ("kills", "loads", "saved", "newer_than_reported", "temporary_files_left"), 0
        )
        with Checkpoints(folder, print) as checkpoints:
            checkpoints.remember({"numbers": torch.zeros(1), "config": CONFIG, "step": 0})
            checkpoints.save()

    def complain(self, about: str) -> None:
        self.wrong.append(f"kill {self.counts['kills']}: {about}")

    def save_and_kill(self, seconds: float) -> None:
        """Start it, kill it after so many seconds, and read what it has reported."""
        reports, theirs = multiprocessing.Pipe(duplex=False)
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=save_forever, args=(self.folder, theirs))
        process.start()
        theirs.close()
        kind, count = reports.recv()
        if kind != "leftovers" or count:
            self.complain(f"{count} temporary files were not removed")
        time.sleep(seconds)
        process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            self.complain(f"it had ended by itself with exit code {process.exitcode}")
        self.kills_since_removal += 1
        with suppress(EOFError):
            while True:
                kind, found = reports.recv()
                if kind == "saved":
                    self.kills_since_removal = 1
                    self.last_saved = found
                    self.counts["saved"] += 1
                else:
                    self.complain(f"{kind} {found}")
        self.counts["kills"] += 1
        self.counts["temporary_files_left"] += count_temporary(self.folder)

    def check(self) -> None:
        """Load the newest checkpoint, which must be whole and no older than the last reported."""
        try:
            _, state = load_newest(self.folder, self.wrong.append)
            for link in (self.folder / LAST, self.folder / BEST):
                if link.is_symlink():
                    load(link.resolve())
        except Exception as error:
            self.complain(f"{type(error).__name__}: {error}")
            return
        step = state["step"]
        if step < self.last_saved or not (state["numbers"] == step).all():
            self.complain(f"step {step} was loaded, {self.last_saved} was reported")
        kept = len(newest_first(self.folder))
        # The best, and one more for each kill between a write and the removal of the oldest.
        if kept > NUM_KEPT + 1 + self.kills_since_removal:
            self.complain(f"{kept} checkpoints are kept")
        self.counts["newer_than_reported"] += step > self.last_saved
        self.last_saved = step
        self.counts["loads"] += 1


def check_saving(kills: int, generator: random.Random) -> harness.Result:
    """Kill a process that saves so many times; return counts, and what was wrong afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        saver = Saver(Path(folder))
        for _ in range(kills):
            saver.save_and_kill(generator.uniform(0.0, MAX_SECONDS_OF_SAVING))
            saver.check()
    return {**saver.counts, "wrong": saver.wrong}


def trained(run: Path) -> tuple[str, list[dict[str, str]]]:
    """Return what kills must not change: the digest of the last checkpoint, and the metrics."""
    content = (run / "checkpoints" / LAST).resolve().read_bytes()
    return hashlib.sha256(content).hexdigest(), harness.without_times(harness.read_rows(run))


def start(flags: str, **options: Any) -> subprocess.Popen[str]:
    """Start main.py in a group of processes of its own."""
    return subprocess.Popen(
        [*harness.MAIN, *flags.split(), *QUIET.split()],
        cwd=harness.ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


@contextmanager
def load_on_machine() -> Iterator[None]:
    """Train on each core, without end, until the context is left or this process ends."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            start(
                f"{LOAD} --run_dir={folder}/{core}",
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
            for core in range(harness.num_cores())
        ]
        try:
            yield
            if ended := [process for process in processes if process.poll() is not None]:
                raise SystemExit(f"what loads the machine has ended: {ended[0].args}")
        finally:
            for process in processes:
                process.kill()
                process.communicate()


class Pace(NamedTuple):
    """How long an uninterrupted run takes."""

    start_up: float  # seconds until the first checkpoint
    end: float
    num_iterations: int

    @property
    def iteration(self) -> float:
        """Return the seconds of an iteration."""
        return (self.end - self.start_up) / self.num_iterations


def uninterrupted(flags: str, run: Path) -> Pace:
    """Time a run that nobody kills."""
    begin = time.monotonic()
    first = 0.0
    process = start(f"{flags} --run_dir={run}")
    while process.poll() is None:
        if not first and (run / "checkpoints" / LAST).exists():
            first = time.monotonic() - begin
        time.sleep(0.01)
    if process.returncode:
        errors = process.communicate()[1]
        raise SystemExit(f"{flags} ended with exit code {process.returncode}: {errors}")
    return Pace(first, time.monotonic() - begin, harness.num_rows(run))


def kill_at(process: subprocess.Popen[str], run: Path, moment: float, pace: Pace) -> None:
    """Kill a run at a moment, in iterations, or as it starts if it is resumed beyond that."""
    seconds = pace.iteration
    if harness.num_rows(run) > moment:
        seconds = pace.start_up
    else:
        while process.poll() is None:
            if harness.num_rows(run) >= int(moment) and (run / "checkpoints" / LAST).exists():
                break
            time.sleep(0.005)
    with suppress(subprocess.TimeoutExpired):
        process.wait(moment % 1 * seconds)
    process.kill()


def killed_run(flags: str, folder: Path, pace: Pace, number: int) -> harness.Result:
    """Kill a run once or twice, and resume it to its end."""
    generator = random.Random(f"{flags} {number}")
    moments: list[float] = []
    result: harness.Result = {"redone": 0, "temporary_files_left": 0, "stderr": ""}
    run = folder / f"{number}-0"
    kills = generator.choice((1, 1, 2))
    while len(moments) < kills and result["redone"] < MAX_ATTEMPTS:
        moment = generator.uniform(0, pace.num_iterations)
        process = start(f"{flags} --{'resume' if moments else 'run_dir'}={run}")
        kill_at(process, run, moment, pace)
        result["stderr"] += process.communicate()[1]
        if process.returncode == -signal.SIGKILL and newest_first(run / "checkpoints"):
            moments.append(round(moment, 2))
            result["temporary_files_left"] += count_temporary(run / "checkpoints")
        elif process.returncode in (0, -signal.SIGKILL):  # the kill came too late, or too early
            result["redone"] += 1
            moments = []
            run = folder / f"{number}-{result['redone']}"
        else:
            break
    process = start(f"{flags} --resume={run}")
    result["stderr"] += process.communicate()[1]
    if not ends_within(5.0, process.pid):
        result["stderr"] += "processes are left\n"
    return {**result, "run": str(run), "exit_code": process.returncode, "killed_at": moments}


def ends_within(seconds: float, group: int) -> bool:
    """Wait until no process is left of a group; return whether that came in so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def check_resume(
    name: str, runs: int, side_by_side: int, minutes: float, loaded: bool = False
) -> harness.Result:
    """Compare runs that were killed, the second half on a loaded machine if loaded, with one that
    was not."""
    folder = Path(tempfile.mkdtemp(prefix=f"kills-{name}-"))
    flags = f"{RUNS[name]} --checkpoint_every=2"
    pace = uninterrupted(flags, folder / "whole")
    digest, rows = trained(folder / "whole")
    deadline = time.monotonic() + 60 * minutes

    def kill(number: int) -> harness.Result | None:
        if time.monotonic() < deadline:
            return killed_run(flags, folder, pace, number)
        return None

    def kill_all(numbers: range) -> list[harness.Result]:
        with ThreadPoolExecutor(side_by_side) as pool:
            return [result for result in pool.map(kill, numbers) if result]

    num_quiet = (runs + 1) // 2 if loaded else runs
    results = [{"loaded": False, **result} for result in kill_all(range(num_quiet))]
    if num_quiet < runs:
        with load_on_machine():
            results += [{"loaded": True, **x} for x in kill_all(range(num_quiet, runs))]
    for result in results:
        compare(result, digest, rows)
    return {
        "flags": f"{flags} {QUIET}".split(),
        "iterations": len(rows),
        "seconds_until_first_checkpoint_and_end": [pace.start_up, pace.end],
        "workers_lost_by_whole_run": num_lost(folder / "whole"),
        "kills": sum(len(result["killed_at"]) for result in results),
        "redone": sum(result["redone"] for result in results),
        "as_wanted": sum(result["as_wanted"] for result in results),
        "runs": results,
    }


def num_lost(run: Path) -> int:
    """Count the workers that a run has lost, in all its parts."""
    return sum(event["kind"] == "worker_lost" for event in read_json_lines(run / EVENTS))


def compare(result: harness.Result, digest: str, rows: list[dict[str, str]]) -> None:
    """Note whether a run ended as the whole one; if so, remove its folder."""
    try:
        own_digest, own_rows = trained(Path(result["run"]))
    except (OSError, ValueError) as error:
        own_digest, own_rows = str(error), []
    result["workers_lost"] = num_lost(Path(result["run"]))
    result["same_checkpoint"] = own_digest == digest
    result["same_rows"] = own_rows == rows
    is_same = result["same_checkpoint"] and result["same_rows"]
    result["as_wanted"] = is_same and result["exit_code"] == 0
    if result["as_wanted"] and not result["stderr"]:
        shutil.rmtree(result.pop("run"))


def write(result: harness.Result) -> None:
    """Write both campaigns."""
    harness.write_json(RESULTS, result)
    saving = result["saving"]
    parts = [saving, *result["resume"].values()]
    commands = "`, `".join(dict.fromkeys(part["command"] for part in parts))
    saved = """A process that only saves checkpoints of 1 and 4 MiB: {kills} kills, after {saved}
checkpoints; {loads} times the newest was whole and no older than what was reported as saved.
Temporary files that kills left: {temporary_files_left}, all gone after the next start unless said
here. Wrong: """.format(**saving)
    saved += "; ".join(saving["wrong"]) or "nothing"
    head = "run | machine | iterations | runs | kills | same last checkpoint | same metrics"
    head += " | exit code 0 | workers lost"
    rows = []
    for name, found in result["resume"].items():
        for is_loaded in (False, True):
            runs = [run for run in found["runs"] if run["loaded"] is is_loaded]
            if runs:
                cells = [name, "loaded" if is_loaded else "quiet", found["iterations"], len(runs)]
                cells += [sum(len(run["killed_at"]) for run in runs)]
                cells += [sum(run[x] for run in runs) for x in ("same_checkpoint", "same_rows")]
                cells += [[run["exit_code"] for run in runs].count(0)]
                cells += [sum(run["workers_lost"] for run in runs)]
                rows.append(" | ".join(map(str, cells)))
    resumed = "Runs that were killed at random moments, a third of them twice, and resumed:"
    table = harness.table(head, rows)
    settings = "\n".join(f"- {name}: `{RUNS[name]}`" for name in result["resume"])
    about = {**result, "command": commands}
    parts = (f"{saved}.", resumed, table, settings)
    harness.write_page("reliability/kills.md", __doc__, *parts, result=about)


def main() -> None:
    parser = harness.make_parser(__doc__, side_by_side=2)
    parser.add_argument("--kills", type=int, default=200, help="of the process that saves")
    killed = "that are killed, of each kind; 22 of each of six are about 180 kills"
    parser.add_argument("--runs", type=int, default=22, help=killed)
    parser.add_argument("--loaded", action="store_true", help="half of them on a loaded machine")
    after = "after which no run of a kind is begun"
    parser.add_argument("--minutes", type=float, default=60, help=after)
    only = "this kind only, beside what is there of others"
    parser.add_argument("--only", action="append", choices=RUNS, help=only)
    given = parser.parse_args()
    command = harness.command_line()
    result: harness.Result = {"resume": {}}
    if given.only:
        result = harness.read_json(RESULTS)
    result.update(harness.describe_machine("numpy", "ale-py"))
    if not given.only:
        result["saving"] = {"command": command, **check_saving(given.kills, random.Random(0))}
        print(json.dumps(result["saving"], indent=2), flush=True)
    for name in given.only or RUNS:
        campaign = check_resume(name, given.runs, given.side_by_side, given.minutes, given.loaded)
        result["resume"][name] = {"command": command, **campaign}
        num_runs = len(campaign["runs"])
        print(f"{name}: {campaign['as_wanted']} of {num_runs} as wanted", flush=True)
        for run in campaign["runs"]:
            if not run["as_wanted"] or run["stderr"]:
                print(json.dumps(run, indent=2), flush=True)
        write(result)


if __name__ == "__main__":
    main()
