"""A run that is disturbed all the time: python -m benchmarks.soak [--minutes=10] [--losses_per_minute=3]

Trains CartPole with four workers. From inside, at random steps, environments kill their worker by SIGKILL or SIGSEGV,
raise, hang, or show what is not a number. From outside, once a minute and in turn, the trainer gets SIGTERM and is
resumed, gets SIGKILL and is resumed, or cannot write to any file for five seconds. Wanted: every fault has its event or
fell into a moment when the trainer was being ended; iterations in metrics.csv rise by one; the policy becomes as good
as without faults; neither the trainer's memory nor its open files grow; and iterations that no fault fell into are as
fast as those of runs without faults, half a minute before and after. Writes results/reliability/soak.json and soak.md.
"""

import argparse
import csv
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

from benchmarks.common import ROOT, about_machine

RESULTS = ROOT / "results" / "reliability"
ENV_NAME = "benchmarks.soak:FaultyCartPole"
FLAGS = (
    *(
        "--num_envs=8",
        "--num_workers=4",
        "--num_steps=128",
        "--num_minibatches=4",
        "--num_epochs=10",
    ),
    *("--learning_rate=0.0003", "--entropy_coef=0.0", "--clip_coef=0.2", "--clip_value_coef=none"),
    *(
        "--total_steps=1000000000",
        "--step_timeout=1",
        "--checkpoint_every=10",
        "--eval_episodes=0",
        "--verbose=0",
    ),
    "--report=False",
)
CAUSES = {  # of the loss of a worker, by what was done to it
    "kill": "SIGKILL",
    "segv": "SIGSEGV",
    "raise": "raised RuntimeError",
    "hang": "hung",
    "nan": "is not finite",
}
LONGEST_EPISODE, SOLVED = 500, 475
FULL_SECONDS = 5.0  # without a disk to write to
SECONDS_TO_TELL = 10.0  # between a fault and its event
SETTLING = 3  # iterations after a fault that do not count as undisturbed
MOST_FAILURES = 5


class FaultyCartPole(CartPoleEnv):
    """CartPole-v1 that does one of CAUSES to its worker with a probability for each step, having said so in a file. The
    moments are random, not seeded, lest they come again in a rollout that is repeated."""

    def __init__(self, probability: float = 0.0, told: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.probability, self.told, self.steps = probability, told, 0
        self.random = random.Random()
        self.is_in_worker = multiprocessing.parent_process() is not None

    def reset(self, **options: Any) -> Any:
        self.steps = 0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation, reward, terminated, _, info = super().step(action)
        if self.is_in_worker and self.random.random() < self.probability:
            observation = self.fail(self.random.choice(list(CAUSES)), observation)
        return observation, reward, terminated, self.steps >= LONGEST_EPISODE, info

    def fail(self, kind: str, observation: np.ndarray) -> np.ndarray:
        with Path(self.told).open("a") as file:
            file.write(f"{time.time()} {kind}\n")
        if kind in ("kill", "segv"):
            os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSEGV)
        if kind == "raise":
            raise RuntimeError("a fault that is wanted")
        if kind == "hang":
            time.sleep(3600)
        return np.full_like(observation, np.nan)


class Trainer:
    """The process that trains, begun or resumed in a folder, and what is seen of it from outside."""

    def __init__(self, folder: Path, probability: float) -> None:
        self.folder, self.run, self.told = folder, folder / "run", folder / "faults"
        self.told.touch()
        kwargs = json.dumps({"probability": probability, "told": str(self.told)})
        self.flags = [
            f"--env_name={ENV_NAME}",
            *FLAGS,
            f"--env_kwargs={kwargs}",
            f"--run_dir={self.run}",
        ]
        self.lives: list[dict[str, Any]] = []
        self.errors: list[str] = []  # lines that it has written to stderr
        self.start()

    def start(self) -> None:
        """Begin the run, or resume it; returns when an iteration is done, or the process has ended."""
        before = self.iteration()
        resumed = [f"--env_name={ENV_NAME}", f"--resume={self.run}", "--verbose=0"]
        command = [sys.executable, "main.py", *(resumed if self.lives else self.flags)]
        began = time.time()
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        Thread(target=self.errors.extend, args=[self.process.stderr], daemon=True).start()
        while self.process.poll() is None and (not self.iteration() or self.iteration() == before):
            time.sleep(0.05)
        life = {
            "began": began,
            "seconds_to_iteration": time.time() - began,
            "iteration": self.iteration(),
        }
        self.lives.append({**life, "samples": []})

    def iteration(self) -> int:
        """The last in metrics.csv; 0 if there is none."""
        rows = self.rows()
        return int(rows[-1]["iteration"]) if rows else 0

    def rows(self) -> list[dict[str, str]]:
        """What metrics.csv has; but for a last line that is being written."""
        try:
            text = (self.run / "metrics.csv").read_text()
        except FileNotFoundError:
            return []
        return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))

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
        self.lives[-1]["ended"] = time.time()
        self.process.send_signal(number)
        code = self.process.wait()
        self.lives[-1].update(gone=time.time(), exit_code=code)
        return code

    def fill_disk(self) -> dict[str, Any]:
        """No file of the trainer's can grow for a while, nor a new one be written."""
        before = self.iteration()
        hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (1, hard))
        time.sleep(FULL_SECONDS)
        if self.process.poll() is None:
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        return {
            "from_iteration": before,
            "to_iteration": self.iteration() + int(self.process.poll() is None),
        }


def reference(seconds: float) -> list[float]:
    """Steps per second of each iteration but the first few of a run without faults."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Path(folder), 0.0)
        time.sleep(seconds)
        trainer.end(signal.SIGTERM)
        return [float(row["steps_per_second"]) for row in trainer.rows()[SETTLING:]]


def soak(trainer: Trainer, minutes: float) -> dict[str, Any]:
    """Disturb a run until time is up; returns what was done to it, and what went wrong at once."""
    done: dict[str, Any] = {
        "sigterm": 0,
        "sigkill": 0,
        "disk_full": [],
        "limit_reached": 0,
        "wrong": [],
    }
    deadline, action, next_action = time.time() + 60 * minutes, 0, time.time() + 60
    while time.time() < deadline and len(done["wrong"]) < MOST_FAILURES:
        time.sleep(1)
        trainer.sample()
        if trainer.process.poll() is not None:
            error = "".join(trainer.errors[-20:])
            if trainer.process.returncode == 1 and any(
                "times within" in line for line in trainer.errors[-1:]
            ):
                done["limit_reached"] += 1
            else:
                done["wrong"].append(
                    f"the trainer ended with exit code {trainer.process.returncode}: {error}"
                )
            trainer.end(signal.SIGTERM)
            trainer.start()
        elif time.time() > next_action:
            kind, action, next_action = (
                ("sigterm", "sigkill", "disk_full")[action % 3],
                action + 1,
                next_action + 60,
            )
            print(f"iteration {trainer.iteration()}: {kind}", flush=True)
            if kind == "disk_full":
                done[kind].append(trainer.fill_disk())
                continue
            number = signal.SIGTERM if kind == "sigterm" else signal.SIGKILL
            code, wanted = trainer.end(number), 143 if kind == "sigterm" else -9
            done[kind] += 1
            if code != wanted:
                done["wrong"].append(
                    f"after {number.name} it ended with exit code {code}, not {wanted}"
                )
            trainer.start()
    if (code := trainer.end(signal.SIGTERM)) != 143:
        done["wrong"].append(f"at the end its exit code is {code}, not 143")
    return done


def match_faults(trainer: Trainer, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Which faults have an event of their kind soon after; which had none for the trainer was then being ended or
    brought the environments to where they were; which losses of workers nobody has wanted."""
    losses = [
        (datetime.fromisoformat(event["time"]).timestamp(), event["cause"])
        for event in events
        if event["kind"] == "worker_lost"
    ]
    counts = dict.fromkeys(CAUSES, 0)
    result: dict[str, Any] = {"named": counts, "while_ended_or_resumed": 0, "unnamed": []}
    for line in trainer.told.read_text().splitlines():
        at, kind = float(line.split()[0]), line.split()[1]
        own = [
            loss
            for loss in losses
            if -0.01 < loss[0] - at < SECONDS_TO_TELL and CAUSES[kind] in loss[1]
        ]
        if own:
            losses.remove(own[0])
            counts[kind] += 1
        elif any(
            life["ended"] - SECONDS_TO_TELL < at <= life["gone"]
            or life["began"] <= at <= life["began"] + life["seconds_to_iteration"]
            for life in trainer.lives
        ):
            result["while_ended_or_resumed"] += 1
        else:
            result["unnamed"].append(line)
    return {**result, "not_wanted": [cause for _, cause in losses]}


def undisturbed(
    rows: list[dict[str, str]], events: list[dict[str, Any]], disk_full: list[dict[str, Any]]
) -> list:
    """Steps per second of the iterations that nothing fell into, nor into the few before."""
    disturbed = {
        i + n for i in (event["iteration"] for event in events) for n in range(SETTLING + 1)
    }
    for full in disk_full:
        disturbed |= set(range(full["from_iteration"], full["to_iteration"] + SETTLING))
    disturbed |= set(range(SETTLING + 1))
    return [
        float(row["steps_per_second"]) for row in rows if int(row["iteration"]) not in disturbed
    ]


def growth(life: dict[str, Any]) -> dict[str, Any] | None:
    """Of the trainer's memory and open files from the first to the last ten seconds of a process's life."""
    samples = np.array(life.pop("samples"))
    if len(samples) < 30:
        return None
    (_, before, files), (_, after, files_after) = (
        np.median(samples[:10], axis=0),
        np.median(samples[-10:], axis=0),
    )
    seconds = samples[-1, 0] - samples[0, 0]
    parts = {"seconds": seconds, "mebibytes": [before, after], "open_files": [files, files_after]}
    return {name: np.round(value, 1).tolist() for name, value in parts.items()}


def check(trainer: Trainer, done: dict[str, Any], speeds: list[float]) -> dict[str, Any]:
    """What the run came to, once it has ended."""
    from ppo import load_policy

    events = [json.loads(line) for line in (trainer.run / "events.jsonl").read_text().splitlines()]
    rows = trainer.rows()
    iterations = [int(row["iteration"]) for row in rows]
    returns = [float(row["episode_return_mean"]) for row in rows if row["episode_return_mean"]]
    replaced = [event["seconds"] for event in events if event["kind"] == "worker_replaced"]
    calm = undisturbed(rows, events, done["disk_full"])
    growths = [found for life in trainer.lives if (found := growth(life))]
    policy = load_policy(trainer.run / "checkpoints" / "last.safetensors", env_name=ENV_NAME)
    evaluation = policy.evaluate(episodes=20)["mean"]
    kinds = sorted({event["kind"] for event in events})
    result = {
        "iterations": iterations[-1],
        "steps": int(rows[-1]["step"]),
        "done_to_it": done,
        "events": {kind: sum(event["kind"] == kind for event in events) for kind in kinds},
        "faults": match_faults(trainer, events),
        "seconds_to_replace": {"median": median(replaced), "max": max(replaced)}
        if replaced
        else None,
        "seconds_to_resume": [round(life["seconds_to_iteration"], 1) for life in trainer.lives[1:]],
        "best_return_mean": max(returns),
        "evaluation": evaluation,
        "growth": growths,
        "steps_per_second": {
            "undisturbed": median(calm),
            "reference": median(speeds),
            "iterations": len(calm),
        },
        "ratio": round(median(calm) / median(speeds), 3),
    }
    wanted = {
        "nothing went wrong at once": not done["wrong"],
        "every fault has its event": not result["faults"]["unnamed"],
        "iterations rise by one": iterations == list(range(1, len(iterations) + 1)),
        f"mean return of 100 episodes reaches {SOLVED}": max(returns) >= SOLVED,
        f"evaluation is at least {SOLVED}": evaluation >= SOLVED,
        "open files do not grow": all(
            life["open_files"][1] <= life["open_files"][0] for life in growths
        ),
        "memory grows by less than 16 MiB": all(
            np.diff(life["mebibytes"])[0] < 16 for life in growths
        ),
        "undisturbed iterations are 0.9 times as fast": result["ratio"] >= 0.9,
    }
    return {**result, "wanted": {name: bool(value) for name, value in wanted.items()}}


def table(result: dict[str, Any]) -> str:
    text = "# A run that is disturbed all the time\n\nWritten by `{command}`. {cpu}, {cores} cores, which had other work"
    text += " too: load {load_before}.\n\nCartPole with four workers: {iterations:,} iterations, {steps:,} steps.\n\n"
    text = text.format(**result) + "| what was done to it | times |\n| --- | --- |\n"
    faults, done = result["faults"], result["done_to_it"]
    for kind, count in faults["named"].items():
        text += f"| environment: {kind}, and its event is there | {count} |\n"
    text += f"| environment: while the trainer ended or resumed | {faults['while_ended_or_resumed']} |\n"
    text += f"| SIGTERM, resumed | {done['sigterm']} |\n| SIGKILL, resumed | {done['sigkill']} |\n"
    text += f"| no file could be written for {FULL_SECONDS:g} s | {len(done['disk_full'])} |\n"
    text += f"| too many workers lost, so that it ended; resumed | {done['limit_reached']} |\n"
    text += f"| workers lost that nobody wanted: {'; '.join(faults['not_wanted'])} | {len(faults['not_wanted'])} |\n"
    text += "\n| wanted | so it was |\n| --- | --- |\n"
    text += "".join(
        f"| {name} | {'yes' if value else 'no'} |\n" for name, value in result["wanted"].items()
    )
    text += "\nBest mean return of 100 episodes: {best_return_mean:.1f}; evaluation: {evaluation:.1f}.\n".format(
        **result
    )
    speeds = "Median steps per second: {undisturbed:,.0f} in {iterations:,} undisturbed iterations, {reference:,.0f} in runs"
    text += (speeds + " without faults.\n").format(**result["steps_per_second"])
    if result["seconds_to_replace"]:
        text += "Seconds to replace a worker: median {median:.1f}, at most {max:.1f}.\n".format(
            **result["seconds_to_replace"]
        )
    return (
        text
        + f"Seconds from a resume to its first iteration: {', '.join(map(str, result['seconds_to_resume']))}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument(
        "--losses_per_minute", type=float, default=3, help="of workers, in the mean"
    )
    options = parser.parse_args()
    command = "python -m benchmarks.soak" + "".join(
        f" --{name}={value:g}" for name, value in vars(options).items()
    )
    result: dict[str, Any] = {"command": command, **about_machine("torch", "gymnasium", "numpy")}
    speeds = reference(30)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    trainer = Trainer(folder, options.losses_per_minute / 60 / median(speeds))
    done = soak(trainer, options.minutes)
    (folder / "done.json").write_text(json.dumps([done, trainer.lives, trainer.errors], indent=2))
    speeds += reference(30)
    result.update(check(trainer, done, speeds))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "soak.json").write_text(json.dumps(result, indent=2) + "\n")
    (RESULTS / "soak.md").write_text(table(result))
    print(table(result))
    if all(result["wanted"].values()):
        shutil.rmtree(folder)
    else:
        print(f"the run is kept in {folder}")


if __name__ == "__main__":
    main()
