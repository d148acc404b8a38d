"""What kill -9 can do to a run: python -m benchmarks.kills [--kills=200] [--runs=20] [--env=E ...]

Two campaigns. saving: a process that does nothing but save is killed at random moments; each time the newest checkpoint
must load and be no older than the last that was reported as saved, and the next start must clean up. resume: runs of
main.py, some of which go on side by side, are killed at random moments, a third of them twice, and resumed; each must
end with the same bytes in its last checkpoint and the same rows in metrics.csv, but for the times in them, as a run
that nobody has killed. Writes results/reliability/kills.json and kills.md, with --env only of these environments the
part; the folders of runs that ended otherwise are kept.
"""

import argparse
import csv
import hashlib
import json
import multiprocessing
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import ROOT, about_machine
from ppo.run.checkpoint import (
    BEST,
    LAST,
    NUM_KEPT,
    TEMPORARY,
    Checkpoints,
    load,
    load_newest,
    newest_first,
)

RESULTS = ROOT / "results" / "reliability"
CONFIG = {"of": "a process that only saves"}
LONGEST = 0.5  # seconds that a process saves before it is killed, at most
SIZES = (2**18, 2**20)  # numbers in the tensors of a checkpoint: 1 and 4 MiB
QUIET = ("--eval_episodes=0", "--verbose=0", "--report=False")
RUNS = {
    "CartPole-v1": ("--num_iterations=30",),
    "LunarLander-v3": ("--num_iterations=16",),
    "PongNoFrameskip-v4": (
        "--num_envs=4",
        "--num_steps=32",
        "--num_minibatches=2",
        "--num_iterations=10",
    ),
}
TIMES = {"seconds", "steps_per_second", "seconds_collecting", "seconds_learning"}
MOST_ATTEMPTS = 10  # to kill a run at a moment when it has a checkpoint and goes on


def save_forever(folder: Path, reports: Connection) -> None:
    """Go on from the newest checkpoint, and report the step of each that is written."""
    torch.set_num_threads(1)
    with Checkpoints(folder, print) as checkpoints:
        reports.send(("leftovers", len(list(folder.glob(f"{TEMPORARY}*")))))
        _, _, state = load_newest(folder, partial(print, "damaged:"))
        checkpoints.adopt(state)
        for step in range(state["step"] + 1, 10**12):
            tensors = {"numbers": torch.full((SIZES[step % len(SIZES)],), float(step))}
            checkpoints.save(tensors, {"config": CONFIG, "step": step}, is_best=step % 5 == 0)
            checkpoints.wait()
            reports.send(
                ("failed", str(checkpoints.failure)) if checkpoints.failure else ("saved", step)
            )


def check_saving(kills: int, generator: random.Random) -> dict[str, Any]:
    """Kill a process that saves; returns how often it was, and what was wrong afterwards."""
    wrong: list[str] = []
    result = {
        "kills": 0,
        "loads": 0,
        "saved": 0,
        "newer_than_reported": 0,
        "temporary_files_left": 0,
        "wrong": wrong,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Checkpoints(folder, print) as checkpoints:
            checkpoints.save({"numbers": torch.zeros(1)}, {"config": CONFIG, "step": 0})
        last = 0
        while result["kills"] < kills:
            reports, theirs = multiprocessing.Pipe(duplex=False)
            process = multiprocessing.get_context("fork").Process(
                target=save_forever, args=(folder, theirs)
            )
            process.start()
            theirs.close()
            kind, count = reports.recv()
            if kind != "leftovers" or count:
                wrong.append(f"kill {result['kills']}: {count} temporary files were not removed")
            time.sleep(generator.uniform(0.0, LONGEST))
            process.kill()
            process.join()
            if process.exitcode != -signal.SIGKILL:
                wrong.append(
                    f"kill {result['kills']}: it had ended by itself with exit code {process.exitcode}"
                )
            with suppress(EOFError):
                while True:
                    kind, what = reports.recv()
                    if kind == "saved":
                        last, result["saved"] = what, result["saved"] + 1
                    else:
                        wrong.append(f"kill {result['kills']}: {kind} {what}")
            result["kills"] += 1
            result["temporary_files_left"] += len(list(folder.glob(f"{TEMPORARY}*")))
            try:
                _, tensors, state = load_newest(folder, wrong.append)
                for link in (folder / LAST, folder / BEST):
                    if link.is_symlink():
                        load(link.resolve())
            except Exception as error:
                wrong.append(f"kill {result['kills']}: {type(error).__name__}: {error}")
                continue
            if state["step"] < last or not (tensors["numbers"] == state["step"]).all():
                wrong.append(
                    f"kill {result['kills']}: step {state['step']} was loaded, {last} was reported"
                )
            if (
                len(newest_first(folder)) > NUM_KEPT + 2
            ):  # the best, and one that was not yet removed
                wrong.append(
                    f"kill {result['kills']}: {len(newest_first(folder))} checkpoints are kept"
                )
            result["newer_than_reported"] += state["step"] > last
            last = state["step"]
            result["loads"] += 1
    return result


def trained(run: Path) -> tuple[str, list[dict[str, str]]]:
    """What must not depend on whether a run was killed: the digest of its last checkpoint, and its metrics."""
    content = (run / "checkpoints" / LAST).resolve().read_bytes()
    with (run / "metrics.csv").open(newline="") as file:
        rows = [
            {name: x for name, x in row.items() if name not in TIMES}
            for row in csv.DictReader(file)
        ]
    return hashlib.sha256(content).hexdigest(), rows


def flags(env_name: str) -> list[str]:
    return [f"--env_name={env_name}", *RUNS[env_name], "--checkpoint_every=2"]


def start(*flags: str) -> subprocess.Popen:
    command = [sys.executable, "main.py", *flags, *QUIET]
    return subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def uninterrupted(env_name: str, run: Path) -> tuple[float, float]:
    """Seconds from the start of a whole run until its first checkpoint, and until its end."""
    begin, first = time.monotonic(), 0.0
    process = start(*flags(env_name), f"--run_dir={run}")
    while process.poll() is None:
        first = first or (time.monotonic() - begin) * (run / "checkpoints" / LAST).exists()
        time.sleep(0.01)
    if process.returncode:
        raise SystemExit(
            f"{process.args} ended with exit code {process.returncode}: {process.communicate()[1]}"
        )
    return first, time.monotonic() - begin


def kill_at(
    process: subprocess.Popen, run: Path, moment: float, seconds: tuple[float, float]
) -> None:
    """Kill a run at a moment, in iterations, or as it starts if it is resumed beyond that; unless it ends before."""
    start_up, iteration = seconds
    is_beyond = num_iterations(run) > moment
    while not is_beyond and process.poll() is None:
        if num_iterations(run) >= int(moment) and (run / "checkpoints" / LAST).exists():
            break
        time.sleep(0.005)
    with suppress(subprocess.TimeoutExpired):
        process.wait(moment % 1 * (start_up if is_beyond else iteration))
    process.kill()


def num_iterations(run: Path) -> int:
    """How many metrics.csv has."""
    with suppress(FileNotFoundError):
        return max(0, (run / "metrics.csv").read_text().count("\n") - 1)
    return 0


def killed_run(
    env_name: str, folder: Path, iterations: int, seconds: tuple[float, float], number: int
) -> Any:
    """A run that is killed once or twice and resumed to its end. seconds: of a start, and of an iteration."""
    generator = random.Random(f"{env_name} {number}")
    moments: list[float] = []
    redone, left, errors, run = 0, 0, "", folder / f"{number}-0"
    kills = generator.choice((1, 1, 2))
    while len(moments) < kills and redone < MOST_ATTEMPTS:
        moment = generator.uniform(0, iterations)
        process = start(
            *([f"--resume={run}"] if moments else [*flags(env_name), f"--run_dir={run}"])
        )
        kill_at(process, run, moment, seconds)
        errors += process.communicate()[1]
        if process.returncode == -signal.SIGKILL and newest_first(run / "checkpoints"):
            moments.append(round(moment, 2))
            left += len(list((run / "checkpoints").glob(f"{TEMPORARY}*")))
        elif process.returncode in (0, -signal.SIGKILL):  # the kill came too late, or too early
            redone, moments = redone + 1, []
            run = folder / f"{number}-{redone}"
        else:
            break
    process = start(f"--resume={run}")
    errors += process.communicate()[1]
    if not ends_within(5.0, process.pid):
        errors += "processes are left\n"
    return {
        "run": str(run),
        "exit_code": process.returncode,
        "killed_at": moments,
        "redone": redone,
        "temporary_files_left": left,
        "stderr": errors,
    }


def ends_within(seconds: float, group: int) -> bool:
    """Whether no process is left of a group by then."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def check_resume(env_name: str, runs: int, side_by_side: int, minutes: float) -> dict[str, Any]:
    """Compare runs that were killed with one that was not."""
    folder = Path(tempfile.mkdtemp(prefix=f"kills-{env_name}-"))
    seconds = uninterrupted(env_name, folder / "whole")
    digest, rows = trained(folder / "whole")
    each = seconds[0], (seconds[1] - seconds[0]) / len(rows)
    deadline = time.monotonic() + 60 * minutes

    def killed(number: int) -> dict[str, Any] | None:
        return (
            killed_run(env_name, folder, len(rows), each, number)
            if time.monotonic() < deadline
            else None
        )

    with ThreadPoolExecutor(side_by_side) as pool:
        results = [result for result in pool.map(killed, range(runs)) if result]
    for result in results:
        try:
            theirs = trained(Path(result["run"]))
        except (OSError, ValueError) as error:
            theirs = str(error), []
        result["same_checkpoint"], result["same_rows"] = theirs[0] == digest, theirs[1] == rows
        result["as_wanted"] = (
            result["same_checkpoint"] and result["same_rows"] and result["exit_code"] == 0
        )
        if result["as_wanted"] and not result["stderr"]:
            subprocess.run(["rm", "-r", result["run"]], check=True)
            del result["run"]
    return {
        "flags": [*flags(env_name), *QUIET],
        "iterations": len(rows),
        "seconds_until_first_checkpoint_and_end": seconds,
        "kills": sum(len(result["killed_at"]) for result in results),
        "redone": sum(result["redone"] for result in results),
        "as_wanted": sum(result["as_wanted"] for result in results),
        "runs": results,
    }


def table(result: dict[str, Any]) -> str:
    saving = result["saving"]
    commands = dict.fromkeys(part["command"] for part in (saving, *result["resume"].values()))
    text = f"# Kill -9\n\nWritten by `{'`, `'.join(commands)}`. {result['cpu']}, {result['cores']} cores.\n\n"
    text += "A process that only saves checkpoints of 1 and 4 MiB: {kills} kills, after {saved} checkpoints; {loads}\n"
    text = (
        text.format(**saving)
        + "times the newest was whole and no older than what was reported as saved.\n"
    )
    text += "Temporary files that kills left: {temporary_files_left}, all gone after the next start".format(
        **saving
    )
    text += f" unless said here. Wrong: {'; '.join(saving['wrong']) or 'nothing'}.\n\n"
    text += "Runs that were killed at random moments, a third of them twice, and resumed:\n\n"
    text += "| environment | iterations | runs | kills | same last checkpoint | same metrics | exit code 0 |\n"
    text += "| --- | --- | --- | --- | --- | --- | --- |\n"
    for env_name, campaign in result["resume"].items():
        runs = campaign["runs"]
        counts = [sum(run[name] for run in runs) for name in ("same_checkpoint", "same_rows")]
        ended = sum(run["exit_code"] == 0 for run in runs)
        cells = (env_name, campaign["iterations"], len(runs), campaign["kills"], *counts, ended)
        text += f"| {' | '.join(map(str, cells))} |\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200, help="of the process that saves")
    parser.add_argument(
        "--runs", type=int, default=20, help="that are killed, for each environment"
    )
    parser.add_argument("--side_by_side", type=int, default=2)
    parser.add_argument(
        "--minutes", type=float, default=60, help="after which no run of an environment is begun"
    )
    parser.add_argument(
        "--env", action="append", choices=RUNS, help="this one only, beside what is there of others"
    )
    options = parser.parse_args()
    command = shlex.join(["python", "-m", "benchmarks.kills", *sys.argv[1:]])
    path = RESULTS / "kills.json"
    result: dict[str, Any] = json.loads(path.read_text()) if options.env else {"resume": {}}
    result.update(**about_machine("torch", "gymnasium", "numpy", "ale-py"))
    if not options.env:
        result["saving"] = {"command": command, **check_saving(options.kills, random.Random(0))}
        print(json.dumps(result["saving"], indent=2), flush=True)
    for env_name in options.env or RUNS:
        campaign = check_resume(env_name, options.runs, options.side_by_side, options.minutes)
        result["resume"][env_name] = {"command": command, **campaign}
        print(
            f"{env_name}: {campaign['as_wanted']} of {len(campaign['runs'])} as wanted", flush=True
        )
        for run in campaign["runs"]:
            if not run["as_wanted"] or run["stderr"]:
                print(json.dumps(run, indent=2), flush=True)
        RESULTS.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")
        path.with_suffix(".md").write_text(table(result))
    print(table(result))


if __name__ == "__main__":
    main()
