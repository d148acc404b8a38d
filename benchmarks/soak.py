"""A run that is disturbed all the time: python -m benchmarks.soak [--minutes=10]
[--losses_per_minute=3]

Trains CartPole with four workers. From inside, at random steps, environments kill their worker by
SIGKILL or SIGSEGV, raise, hang, or show what is not a number. From outside, once a minute and in
turn, the trainer gets SIGTERM and is resumed, gets SIGKILL and is resumed, or cannot write to any
file for five seconds. Wanted: every fault has its event or fell into a moment when the trainer was
being ended; iterations in metrics.csv rise by one; the policy becomes as good as without faults;
neither the trainer's memory nor its open files grow; and iterations that no fault fell into are as
fast as those of runs without faults, half a minute before and after. Writes
results/reliability/soak.json and soak.md.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.faulty_cartpole import CAUSES

ENV_NAME = "benchmarks.faulty_cartpole:FaultyCartPole"
FLAGS = (
    "--num_envs=8 --num_workers=4 --num_steps=128 --num_minibatches=4 --num_epochs=10"
    " --learning_rate=0.0003 --entropy_coef=0.0 --clip_coef=0.2 --clip_value_coef=none"
    " --total_steps=1000000000 --step_timeout=1 --checkpoint_every=10 --eval_episodes=0"
    " --verbose=0 --report=False"
)
SOLVED = 475
FULL_SECONDS = 5.0  # without a disk to write to
SECONDS_TO_TELL = 10.0  # between a fault and its event
SETTLING = 3  # iterations after a fault that do not count as undisturbed
MOST_FAILURES = 5
EXIT_CODES = {"sigterm": 143, "sigkill": -9}
ACTIONS = ("sigterm", "sigkill", "disk_full")  # once a minute, in turn


class Trainer:
    """The process that trains, and what is seen of it from outside."""

    def __init__(self, folder: Path, probability: float) -> None:
        self.run = folder / "run"
        self.told = folder / "faults"
        self.told.touch()
        kwargs = json.dumps({"probability": probability, "told": str(self.told)})
        self.flags = [*FLAGS.split(), f"--env_kwargs={kwargs}", f"--run_dir={self.run}"]
        self.lives: list[dict[str, Any]] = []
        self.errors: list[str] = []  # lines that it has written to stderr
        self.start()

    def start(self) -> None:
        """Begin the run, or resume it; return after an iteration, or when the process has ended."""
        before = self.iteration()
        flags = [f"--resume={self.run}", "--verbose=0"] if self.lives else self.flags
        began = time.time()
        self.process = subprocess.Popen(
            [*harness.MAIN, f"--env_name={ENV_NAME}", *flags],
            cwd=harness.ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        Thread(target=self.errors.extend, args=[self.process.stderr], daemon=True).start()
        while self.process.poll() is None and self.iteration() in (0, before):
            time.sleep(0.05)
        life = {
            "began": began,
            "seconds_to_iteration": time.time() - began,
            "iteration": self.iteration(),
        }
        self.lives.append({**life, "samples": []})

    def iteration(self) -> int:
        """Return the last iteration in metrics.csv; 0 if there is none."""
        rows = harness.read_rows(self.run)
        return int(rows[-1]["iteration"]) if rows else 0

    def sample(self) -> None:
        """Note the trainer's resident MiB and its open files."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            mebibytes = int(status.split("VmRSS:")[1].split()[0]) / 1024
            files = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        except (OSError, IndexError):
            return
        self.lives[-1]["samples"].append((time.time(), mebibytes, files))

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end; return the exit code."""
        self.lives[-1]["ended"] = time.time()
        self.process.send_signal(number)
        code = self.process.wait()
        self.lives[-1].update(gone=time.time(), exit_code=code)
        return code

    def fill_disk(self) -> dict[str, int]:
        """Let no file of the trainer's grow for a while, nor a new one be written."""
        before = self.iteration()
        hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (1, hard))
        time.sleep(FULL_SECONDS)
        after = self.iteration()
        if self.process.poll() is None:
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
            after += 1
        return {"from_iteration": before, "to_iteration": after}


def reference(seconds: float) -> list[float]:
    """Measure steps per second of each iteration but the first few of a run without faults."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Path(folder), 0.0)
        time.sleep(seconds)
        trainer.end(signal.SIGTERM)
        run = harness.read_run(trainer.run)
        return run.column("steps_per_second")[SETTLING:]


def soak(trainer: Trainer, minutes: float) -> harness.Result:
    """Disturb a run until time is up; return what was done to it, and what went wrong at once."""
    wrong: list[str] = []
    done: harness.Result = {"sigterm": 0, "sigkill": 0, "disk_full": [], "limit_reached": 0}
    deadline = time.time() + 60 * minutes
    next_action = time.time() + 60
    num_actions = 0
    while time.time() < deadline and len(wrong) < MOST_FAILURES:
        time.sleep(1)
        trainer.sample()
        if trainer.process.poll() is not None:
            code = trainer.process.returncode
            if code == 1 and trainer.errors and "times within" in trainer.errors[-1]:
                done["limit_reached"] += 1
            else:
                last_lines = "".join(trainer.errors[-20:])
                wrong.append(f"the trainer ended with exit code {code}: {last_lines}")
            trainer.end(signal.SIGTERM)
            trainer.start()
        elif time.time() > next_action:
            action = ACTIONS[num_actions % len(ACTIONS)]
            num_actions += 1
            next_action += 60
            print(f"iteration {trainer.iteration()}: {action}", flush=True)
            if action == "disk_full":
                done[action].append(trainer.fill_disk())
            else:
                done[action] += 1
                wrong += end_and_resume(trainer, action)
    code = trainer.end(signal.SIGTERM)
    if code != EXIT_CODES["sigterm"]:
        wrong.append(f"at the end its exit code is {code}, not {EXIT_CODES['sigterm']}")
    return {**done, "wrong": wrong}


def end_and_resume(trainer: Trainer, action: str) -> list[str]:
    """Send a signal to the trainer and resume its run; return what was wrong."""
    number = signal.Signals[action.upper()]
    code = trainer.end(number)
    trainer.start()
    if code == EXIT_CODES[action]:
        return []
    return [f"after {number.name} it ended with exit code {code}, not {EXIT_CODES[action]}"]


def match_faults(trainer: Trainer, events: list[dict[str, Any]]) -> harness.Result:
    """Find for each fault an event of its kind soon after.

    Counts those that had none for the trainer was then being ended or brought the environments to
    where they were; lists others that had none, and losses of workers that nobody wanted.
    """
    losses = [
        (datetime.fromisoformat(event["time"]).timestamp(), event["cause"])
        for event in events
        if event["kind"] == "worker_lost"
    ]
    named = dict.fromkeys(CAUSES, 0)
    while_ended_or_resumed = 0
    unnamed = []
    for line in trainer.told.read_text().splitlines():
        moment, kind = line.split()
        at = float(moment)
        own = [
            (lost_at, cause)
            for lost_at, cause in losses
            if -0.01 < lost_at - at < SECONDS_TO_TELL and CAUSES[kind] in cause
        ]
        if own:
            losses.remove(own[0])
            named[kind] += 1
        elif any(
            life["ended"] - SECONDS_TO_TELL < at <= life["gone"]
            or life["began"] <= at <= life["began"] + life["seconds_to_iteration"]
            for life in trainer.lives
        ):
            while_ended_or_resumed += 1
        else:
            unnamed.append(line)
    return {
        "named": named,
        "while_ended_or_resumed": while_ended_or_resumed,
        "unnamed": unnamed,
        "not_wanted": [cause for _, cause in losses],
    }


def undisturbed(
    rows: list[dict[str, str]], events: list[dict[str, Any]], disk_full: list[dict[str, int]]
) -> list[float]:
    """List steps per second of the iterations that nothing fell into, nor into the few before."""
    disturbed = set(range(SETTLING + 1))
    for event in events:
        disturbed |= set(range(event["iteration"], event["iteration"] + SETTLING + 1))
    for full in disk_full:
        disturbed |= set(range(full["from_iteration"], full["to_iteration"] + SETTLING))
    calm = (row for row in rows if int(row["iteration"]) not in disturbed)
    return [float(row["steps_per_second"]) for row in calm]


def growth(samples: list[tuple[float, float, int]]) -> harness.Result:
    """Compare memory and open files in the first and the last ten seconds of a process."""
    table = np.array(samples)
    before = np.median(table[:10], axis=0).round(1)
    after = np.median(table[-10:], axis=0).round(1)
    return {
        "seconds": round(table[-1, 0] - table[0, 0], 1),
        "mebibytes": [float(before[1]), float(after[1])],
        "open_files": [float(before[2]), float(after[2])],
    }


def check(trainer: Trainer, done: harness.Result, speeds: list[float]) -> harness.Result:
    """Say what the run came to, once it has ended."""
    from ppo import load_policy

    text = (trainer.run / "events.jsonl").read_text()
    events = [json.loads(line) for line in text.splitlines()]
    rows = harness.read_rows(trainer.run)
    returns = [float(row["episode_return_mean"]) for row in rows if row["episode_return_mean"]]
    replaced = [event["seconds"] for event in events if event["kind"] == "worker_replaced"]
    calm = undisturbed(rows, events, done["disk_full"])
    policy = load_policy(trainer.run / "checkpoints" / "last.safetensors", env_name=ENV_NAME)
    lives = trainer.lives
    result = {
        "iterations": int(rows[-1]["iteration"]),
        "steps": int(rows[-1]["step"]),
        "done_to_it": done,
        "events": Counter(sorted(event["kind"] for event in events)),
        "faults": match_faults(trainer, events),
        "seconds_to_replace": None,
        "seconds_to_resume": [round(life["seconds_to_iteration"], 1) for life in lives[1:]],
        "best_return_mean": max(returns),
        "evaluation": policy.evaluate(episodes=20)["mean"],
        "growth": [growth(life["samples"]) for life in lives if len(life["samples"]) >= 30],
        "steps_per_second": {
            "undisturbed": median(calm),
            "reference": median(speeds),
            "iterations": len(calm),
        },
        "ratio": round(median(calm) / median(speeds), 3),
    }
    if replaced:
        result["seconds_to_replace"] = {"median": median(replaced), "max": max(replaced)}
    iterations = [int(row["iteration"]) for row in rows]
    rise_by_one = iterations == list(range(1, len(iterations) + 1))
    return {**result, "wanted": judge(result, rise_by_one)}


def judge(result: harness.Result, rise_by_one: bool) -> dict[str, bool]:
    """Say which of the things that are wanted have come true."""
    files = [life["open_files"] for life in result["growth"]]
    memory = [life["mebibytes"] for life in result["growth"]]
    return {
        "nothing went wrong at once": not result["done_to_it"]["wrong"],
        "every fault has its event": not result["faults"]["unnamed"],
        "iterations rise by one": rise_by_one,
        f"mean return of 100 episodes reaches {SOLVED}": result["best_return_mean"] >= SOLVED,
        f"evaluation is at least {SOLVED}": result["evaluation"] >= SOLVED,
        "open files do not grow": all(after <= before for before, after in files),
        "memory grows by less than 16 MiB": all(after - before < 16 for before, after in memory),
        "undisturbed iterations are 0.9 times as fast": result["ratio"] >= 0.9,
    }


def show(result: harness.Result) -> list[str]:
    """Write the parts of the page."""
    faults = result["faults"]
    done = result["done_to_it"]
    rows = [
        f"environment: {kind}, and its event is there | {n}" for kind, n in faults["named"].items()
    ]
    lost = faults["not_wanted"]
    rows += [
        f"environment: while the trainer ended or resumed | {faults['while_ended_or_resumed']}",
        f"SIGTERM, resumed | {done['sigterm']}",
        f"SIGKILL, resumed | {done['sigkill']}",
        f"no file could be written for {FULL_SECONDS:g} s | {len(done['disk_full'])}",
        f"too many workers lost, so that it ended; resumed | {done['limit_reached']}",
        f"workers lost that nobody wanted: {'; '.join(lost)} | {len(lost)}",
    ]
    answers = [f"{name} | {'yes' if x else 'no'}" for name, x in result["wanted"].items()]
    speeds = result["steps_per_second"]
    resumed = harness.each(result["seconds_to_resume"], ".1f")
    last = f"""Best mean return of 100 episodes: {result["best_return_mean"]:.1f}; evaluation:
{result["evaluation"]:.1f}. Median steps per second: {speeds["undisturbed"]:,.0f} in
{speeds["iterations"]:,} undisturbed iterations, {speeds["reference"]:,.0f} in runs without faults.
Seconds from a resume to its first iteration: {resumed}."""
    if result["seconds_to_replace"]:
        replacing = "Seconds to replace a worker: median {median:.1f}, at most {max:.1f}."
        last += "\n" + replacing.format(**result["seconds_to_replace"])
    return [
        f"{result['iterations']:,} iterations, {result['steps']:,} steps.",
        harness.table("what was done to it | times", rows),
        harness.table("wanted | so it was", answers),
        last,
    ]


def main() -> None:
    parser = harness.make_parser(__doc__, minutes=10.0)
    parser.add_argument("--losses_per_minute", type=float, default=3, help="of workers, the mean")
    given = parser.parse_args()
    result = harness.describe()
    speeds = reference(30)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    trainer = Trainer(folder, given.losses_per_minute / 60 / median(speeds))
    done = soak(trainer, given.minutes)
    (folder / "done.json").write_text(json.dumps([done, trainer.lives, trainer.errors], indent=2))
    speeds += reference(30)
    result.update(check(trainer, done, speeds))
    harness.write_json("reliability/soak.json", result)
    harness.write_page("reliability/soak.md", __doc__, *show(result), result=result)
    if all(result["wanted"].values()):
        shutil.rmtree(folder)
    else:
        print(f"the run is kept in {folder}")


if __name__ == "__main__":
    main()
