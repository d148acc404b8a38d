"""What the files of a run's folder, and signals, can do to a command: situations of
benchmarks.faults."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks import harness
from ppo import Callback
from ppo.run import checkpoint
from ppo.run.loggers.logger import Logger

Cell = tuple[str, str, str]
State = dict[str, Any]

LIMIT = 60  # seconds
DEEP = "[" * 100_000 + "]" * 100_000
MODULES = "modules"  # of the run's folder, in which commands are then called
TRAPS = ("numpy", "gymnasium", "torch", "ppo", "random", "json", "yaml", "rich", "socket", "jax")
NUM_LINES = 20  # that a command may write to stderr


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 << 30)


def cut_in_half(path: Path, content: bytes) -> None:
    path.write_bytes(content[: len(content) // 2])


def overwrite_middle(path: Path, content: bytes) -> None:
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes(range(256)) + content[middle + 256 :])


def set_traps(folder: Path) -> None:
    """Write modules with the names of some that commands import, which leave a file "trapped"."""
    for name in TRAPS:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'trapped')!r}, 'a').close()\n")


# By way: what makes it, from the path and the content that was there.
CONTENTS: dict[str, Callable[[Path, bytes], Any]] = {
    "missing": lambda path, content: None,
    "empty": lambda path, content: path.touch(),
    "folder": lambda path, content: path.mkdir(),
    "fifo": lambda path, content: os.mkfifo(path),
    "device": lambda path, content: path.symlink_to("/dev/zero"),
    "8 GiB": lambda path, content: make_sparse(path),
    "deep": lambda path, content: path.write_text(DEEP),
    "number": lambda path, content: path.write_text("7\n"),
    "no text": lambda path, content: path.write_bytes(b"\xff\xfe\0" * 100),
    "half": cut_in_half,
    "overwritten": overwrite_middle,
    "traps": lambda path, content: set_traps(path.parent),
}
FILES = (
    "config.json",
    "summary.json",
    "metrics.csv",
    "events.jsonl",
    "checkpoints/last.safetensors",
    "set-4.json",
    "lock",
    MODULES,
)
COMMANDS = {
    "report": "report RUN",
    "plot": "plot RUN --output=OUTPUT.png",
    "runs": "runs --folder=PARENT",
    "set": "set RUN learning_rate=1e-4",
    "evaluate": "evaluate RUN --episodes=1",
    "resume": "--resume=RUN --total_steps=192 --verbose=0",
}
NAN = float("nan")
# By way: what someone puts in place of entries of a checkpoint's state, to seal it again.
SEALED: dict[str, Callable[[State], State]] = {
    "weights NaN": lambda state: filled(state, "model.value_head.weight", NAN),
    "variance negative": lambda state: filled(state, "normalize_observation.variance", -1.0),
    "moments empty": lambda state: {"optimizer.exp_avg": torch.zeros(0)},
    "moments short": lambda state: {"optimizer.exp_avg_sq": state["optimizer.exp_avg"][:-1]},
    "moments int64": lambda state: {"optimizer.exp_avg": state["optimizer.exp_avg"].long()},
    "moments infinite": lambda state: filled(state, "optimizer.exp_avg", float("inf")),
    "step negative": lambda state: filled(state, "optimizer.step", -1.0),
    "generator": lambda state: filled(state, "generator.cpu", 255),
    "observations": lambda state: {"next.observations": state["next.observations"][:1]},
    "lengths": lambda state: filled(state, "open_episodes.lengths", 2**62),
    "count text": lambda state: {"iteration": "x"},
    "rate NaN": lambda state: {"learning_rate": NAN},
    "faults list": lambda state: {"faults": [1]},
    "attributes text": lambda state: {"env_attributes": "x"},
    "attributes unknown": lambda state: {"env_attributes": {"colour": "red"}},
    "callback text": lambda state: {"callbacks.KeepBest.0.best": "x"},
    "callback null": lambda state: {"callbacks.KeepBest.0.best_iteration": None},
}
# Signals that follow each other, by name: the exit code is that of the first.
SIGNALS = {
    "TERM TERM": (signal.SIGTERM, signal.SIGTERM),
    "TERM USR1 HUP": (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP),
    "USR1 TERM INT": (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT),
    "HUP INT TERM": (signal.SIGHUP, signal.SIGINT, signal.SIGTERM),
    "INT TERM": (signal.SIGINT, signal.SIGTERM),
    "INT INT": (signal.SIGINT, signal.SIGINT),
    "INT INT INT": (signal.SIGINT, signal.SIGINT, signal.SIGINT),
    "STOP CONT": (signal.SIGSTOP, signal.SIGCONT),  # a pause longer than --step_timeout
}
PAUSE = 3.0
CODES = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 143}
MOMENTS = {"first row": 1, "later row": 8, "last row": 20}  # of metrics.csv
SIGNALLED = (
    *("--env_name=CartPole-v1", "--preset=none", "--num_envs=4", "--num_steps=128"),
    *("--report=False", "--verbose=0", "--num_iterations=20", "--checkpoint_every=1000"),
    *("--eval_episodes=2", "--num_workers=1", "--step_timeout=1.5"),
)
# What blocks, by flags; the console does so as nobody reads what it prints.
BLOCKED = {
    "callback": "--callback=benchmarks.parts.fault_files:BlockedCallback",
    "callback that catches all": "--callback=benchmarks.parts.fault_files:StubbornCallback",
    "logger": "--logger=benchmarks.parts.fault_files:BlockedLogger",
    "console": "--verbose=2",
}
SECONDS_TO_STAND = 2.0  # without another iteration: it is blocked
SECONDS_TO_END = 4.0  # twice what is promised: a command runs on each core


class BlockedCallback(Callback):
    def on_checkpoint(self, run: Any) -> None:
        time.sleep(1000)


class StubbornCallback(Callback):
    def on_checkpoint(self, run: Any) -> None:
        while True:
            with suppress(BaseException):
                time.sleep(1000)


class BlockedLogger(Logger):
    def log(self, metrics: Any, histograms: Any) -> None:
        time.sleep(1000)


def filled(state: State, name: str, number: float) -> State:
    """Return an entry of a state, a tensor, with the same number everywhere."""
    return {name: torch.full_like(state[name], number)}


def seal(path: Path, state: State) -> None:
    """Write any state as a checkpoint whose digest is right."""
    tensors = {name: x.contiguous().clone() for name, x in state.items() if torch.is_tensor(x)}
    values = {name: value for name, value in state.items() if name not in tensors}
    values["format"] = checkpoint.FORMAT
    values["sha256"] = checkpoint.digest({**values, **tensors})
    save_file(tensors, path, {"state": json.dumps(values, sort_keys=True)})


def reseal(run: Path, change: Callable[[State], State]) -> Path:
    """Replace entries of a run's newest checkpoint, and seal it again; return its path."""
    path = (run / "checkpoints/last.safetensors").resolve()
    state = checkpoint.load(path)
    path.unlink()
    seal(path, {**state, **change(state)})
    return path


def file_cells() -> list[Cell]:
    """List what stands in place of which file, for which command."""
    cells = [(name, of, way) for name in FILES for of in COMMANDS for way in CONTENTS]
    files = [cell for cell in cells if (cell[0] == MODULES) == (cell[2] == "traps")]
    return files + [("sealed", of, way) for of in ("evaluate", "resume") for way in SEALED]


def signal_cells() -> list[Cell]:
    """List which signals arrive when."""
    return [("signals", moment, way) for moment in MOMENTS for way in SIGNALS]


def blocked_cells() -> list[Cell]:
    """List which signal arrives while what blocks."""
    return [("blocked", what, number.name) for what in BLOCKED for number in CODES]


def judge_file(cell: Cell, good: Path, mark: dict[str, str]) -> str:
    """Spoil one file of a copy of a good run, or seal its checkpoint anew, and say what a command
    did with the run.

    mark: environment variables of all processes."""
    name, command, way = cell
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        shutil.copytree(good, run, symlinks=True)
        if name == "sealed":
            reseal(run, SEALED[way])
        else:
            path = run / name
            content = path.read_bytes() if path.exists() else b'{"learning_rate": 0.001}'
            path.unlink(missing_ok=True)
            CONTENTS[way](path, content)
        output = str(Path(folder, "output"))
        words = COMMANDS[command].replace("RUN", str(run)).replace("PARENT", folder)
        done = subprocess.run(
            [sys.executable, harness.ROOT / "main.py", *words.replace("OUTPUT", output).split()],
            cwd=run if name == MODULES else harness.ROOT,
            env={**os.environ, **mark},
            capture_output=True,
            errors="replace",
            timeout=LIMIT,
        )
        if (run / "trapped").exists():
            return "DEFECT: a module of the run's folder was imported"
        lines = done.stderr.splitlines()
        if "Traceback" in done.stderr or len(lines) > NUM_LINES:
            return f"DEFECT: {len(lines)} lines, the last of them {lines[-1][:100]}"
        if done.returncode in (2, 3):
            errors = [line for line in lines if line.startswith("error: ")]
            return "named" if len(errors) == 1 else f"DEFECT: {len(errors)} errors"
        if done.returncode:
            return f"DEFECT: exit code {done.returncode}: {lines[-1:]}"
        if command == "resume" and newest_step(run) != 6 * 32:
            return f"DEFECT: resumed to step {newest_step(run)}"
        return "survived" if "warning: " in done.stderr + done.stdout else "unharmed"


def newest_step(run: Path) -> int:
    """Return the step in the name of a run's newest checkpoint, 0 without one."""
    return max((int(path.stem) for path in run.glob("checkpoints/0*.safetensors")), default=0)


def judge_signals(cell: Cell, mark: dict[str, str]) -> str:
    """Send signals to a run until it is over; say what it left."""
    _, moment, way = cell
    first, *others = SIGNALS[way]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        process = subprocess.Popen(
            [sys.executable, "main.py", *SIGNALLED, f"--run_dir={run}"],
            cwd=harness.ROOT,
            env={**os.environ, **mark},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        send = partial(os.killpg, process.pid) if first == signal.SIGSTOP else process.send_signal
        deadline = time.monotonic() + LIMIT
        while harness.num_rows(run) < MOMENTS[moment] and process.poll() is None:
            time.sleep(0.002)
        send(first)
        # Of two that wait, either may be the first.
        time.sleep(PAUSE if first == signal.SIGSTOP else 0.05)
        for number in others:
            send(number)
            time.sleep(0.01)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if process.poll() is None:
            process.kill()
            return f"DEFECT: no end within {LIMIT} s"
        errors = process.communicate()[1]
        rows = harness.num_rows(run)
        if first == signal.SIGSTOP and "worker" in errors:
            return f"DEFECT: {errors[-100:]}"
        if process.returncode == 0 and rows == MOMENTS["last row"]:
            return "unharmed"  # it was over
        if process.returncode != CODES.get(first) or "Traceback" in errors:
            return f"DEFECT: exit code {process.returncode}: {errors[-100:]}"
        step = newest_step(run)
        lost = rows - step // (4 * 128)
        if lost > 0 and "lost" not in errors:
            return f"DEFECT: {lost} iterations are lost without a word"
        if leftovers := [*run.glob("checkpoints/.tmp-*")]:
            return f"DEFECT: {leftovers[0].name} is left"
        return "named"


def judge_blocked(cell: Cell, mark: dict[str, str]) -> str:
    """Send a signal to a run that is blocked; say what it left."""
    _, what, name = cell
    number = signal.Signals[name]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        flags = ["--num_iterations=100000", "--checkpoint_every=5", "--log_every=1", BLOCKED[what]]
        if what != "console":
            flags.append("--logger=none")
        process = subprocess.Popen(
            [sys.executable, "main.py", *SIGNALLED, *flags, f"--run_dir={run}"],
            cwd=harness.ROOT,
            env={**os.environ, **mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + LIMIT
        rows = 0
        while (not rows or rows < harness.num_rows(run)) and time.monotonic() < deadline:
            rows = harness.num_rows(run)
            time.sleep(SECONDS_TO_STAND)
        sent = time.monotonic()
        process.send_signal(number)
        while process.poll() is None and time.monotonic() < sent + LIMIT:
            time.sleep(0.01)
        seconds = time.monotonic() - sent
        process.kill()
        errors = process.communicate()[1]
        if process.returncode != CODES[number] or "Traceback" in errors:
            return f"DEFECT: exit code {process.returncode}: {errors[-100:]}"
        if lost := harness.num_rows(run) - newest_step(run) // (4 * 128):
            return f"DEFECT: {lost} iterations are lost"
        return "named" if seconds < SECONDS_TO_END else f"DEFECT: {seconds:.1f} s until its end"
