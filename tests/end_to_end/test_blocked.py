"""Signals while the user's code or the output blocks the trainer, and checkpoints when no more
threads can be made, by main.py and train in real processes."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_ends import SHORT, assert_saved, run_in
from tests.running import ROOT, command, events, nothing_left, num_rows, run_main, saved, wait_until

SLOW = pytest.mark.slow
CODES = {"SIGTERM": 143, "SIGUSR1": 143, "SIGHUP": 129, "SIGINT": 130}
F_SETPIPE_SZ = 1031  # of Linux's fcntl.h
# What blocks in a method that BLOCKED names, in one of several ways.
BLOCKING = """
import ctypes, os, threading, time
from ppo import Callback
from ppo.run.loggers.logger import Logger

def sleep():
    time.sleep(1000)

def lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def pipe():
    os.read(os.pipe()[0], 1)

def in_c():
    while True:
        ctypes.CDLL(None).pause()

def swallow():
    while True:
        try:
            time.sleep(100)
        except BaseException:
            pass

def reach(method):
    blocked, way = os.environ.get("BLOCKED", "none none").split()
    if method == blocked:
        open("reached", "w").close()
        globals()[way]()

class Blocking(Callback):
    def on_start(self, run):
        reach("on_start")

    def on_iteration(self, run):
        if run.iteration == 3:
            reach("on_iteration")

    def on_checkpoint(self, run):
        if run.iteration == 5:
            reach("on_checkpoint")

    def on_end(self, run):
        reach("on_end")

class BlockingLogger(Logger):
    calls = 0

    def __post_init__(self):
        reach("init")

    def log(self, metrics, histograms):
        self.calls += 1
        if self.calls == 4:
            reach("log")

    def summarize(self, summary):
        reach("summarize")

    def close(self):
        reach("close")
"""
FLAGS = (
    *SHORT,
    "--total_steps=160",
    "--checkpoint_every=5",
    "--num_workers=2",
    "--callback=blocking:Blocking",
    "--run_dir=run",
)
LOGGED = (*FLAGS, "--logger=blocking:BlockingLogger")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last checkpoint of a run that nothing blocks."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "blocking.py").write_text(BLOCKING)
    done = run_in(folder, *FLAGS)
    assert (done.returncode, done.stderr) == (0, "")
    return saved(folder / "run")[-1]


def start_blocked(folder: Path, where: str, way: str) -> subprocess.Popen:
    """Start a run, and wait until a method blocks it."""
    (folder / "blocking.py").write_text(BLOCKING)
    process = subprocess.Popen(
        command(*LOGGED),
        cwd=folder,
        env={**os.environ, "BLOCKED": f"{where} {way}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until((folder / "reached").exists, process)
    time.sleep(0.1)
    return process


def assert_ends(process: subprocess.Popen, name: str) -> str:
    """Send a signal and assert that it ends the process and its children; return what it said."""
    process.send_signal(signal.Signals[name])
    try:
        _, errors = process.communicate(timeout=10)
    finally:
        process.kill()
    assert (process.returncode, (errors or "").count("\n")) in [(CODES[name], 1), (CODES[name], 0)]
    assert nothing_left(process.pid)
    return errors or ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
@pytest.mark.parametrize("way", ["swallow", "sleep", "lock", "pipe", "in_c"])
def test_a_signal_is_heard_while_a_callback_blocks_at_a_checkpoint(
    way: str, name: str, whole: Path, tmp_path: Path
) -> None:
    process = start_blocked(tmp_path, "on_checkpoint", way)
    errors = assert_ends(process, name)
    folder = tmp_path / "run"
    said = f"error: {name} after step 80: stopped, saved in {folder}: --resume={folder} continues\n"
    assert errors == said
    assert num_rows(folder) == 5
    assert_saved(folder)
    assert [event["signal"] for event in events(folder, "signal")] == [name]
    assert not list(folder.rglob(".tmp-*"))
    if way in ("swallow", "in_c"):
        flags = ("--callback=blocking:Blocking", "--logger=blocking:BlockingLogger")
        done = run_in(tmp_path, "--resume=run", *flags)
        assert (done.returncode, done.stderr) == (0, "")
        assert saved(folder)[-1].read_bytes() == whole.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("where", "way", "step"),
    [
        ("log", "in_c", 64),
        ("log", "sleep", 64),
        ("on_start", "swallow", 0),
        ("on_iteration", "sleep", 32),
        ("on_iteration", "swallow", 32),
        ("on_end", "swallow", 160),
        ("summarize", "lock", 160),
        ("close", "sleep", 160),
        ("close", "in_c", 160),
    ],
)
def test_a_signal_is_heard_while_any_other_method_blocks(
    where: str, way: str, step: int, name: str, tmp_path: Path
) -> None:
    process = start_blocked(tmp_path, where, way)
    errors = assert_ends(process, name)
    assert f"{name} after step {step}: " in errors
    assert f"saved in {tmp_path / 'run'}" in errors
    assert int(saved(tmp_path / "run")[-1].stem) == step


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sleep", "in_c"])
def test_a_signal_is_heard_while_a_logger_blocks_at_the_start(way: str, tmp_path: Path) -> None:
    assert assert_ends(start_blocked(tmp_path, "init", way), "SIGTERM").startswith("error: SIGTERM")


def start_unread(folder: Path, **outputs: Any) -> subprocess.Popen:
    """Start a run that prints to an output which nobody reads, and wait until it is full."""
    process = subprocess.Popen(
        command(*SHORT, "--total_steps=10000000", "--log_every=1", f"--run_dir={folder}"),
        cwd=ROOT,
        text=True,
        start_new_session=True,
        **outputs,
    )

    def stands() -> bool:
        rows = num_rows(folder)
        time.sleep(1)
        return 0 < rows == num_rows(folder)

    wait_until(stands, process)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
@pytest.mark.parametrize("with_errors", [True, False])
def test_a_signal_is_heard_while_nobody_reads_a_full_pipe(
    name: str, with_errors: bool, tmp_path: Path
) -> None:
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, F_SETPIPE_SZ, 4096)
    errors = write_end if with_errors else subprocess.PIPE
    process = start_unread(tmp_path, stdout=write_end, stderr=errors)
    os.close(write_end)
    said = assert_ends(process, name)
    os.close(read_end)
    assert said.startswith("" if with_errors else f"error: {name} after step ")
    assert_saved(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_is_heard_while_a_terminal_is_stopped(name: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = start_unread(tmp_path, stdout=theirs, stderr=theirs)  # as by Ctrl-S
    os.close(theirs)
    assert_ends(process, name)
    os.close(ours)
    assert_saved(tmp_path)


GUEST = """
import json, os, signal, sys, threading
import blocking
from ppo import train
from ppo.errors import Interrupted

def state():
    names = ("SIGTERM", "SIGUSR1", "SIGHUP", "SIGINT")
    return [
        threading.active_count(),
        [str(signal.getsignal(getattr(signal, name))) for name in names],
        len(os.listdir("/proc/self/fd")),
    ]

if __name__ == "__main__":
    flags = json.loads(sys.argv[1])
    train("CartPole-v1", **{**flags, "logger": "none", "run_dir": "first"})
    before = state()
    try:
        train("CartPole-v1", callbacks=[blocking.Blocking()], **flags)
    except Interrupted as error:
        print(error, error.exit_code, before == state())
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("where", ["on_checkpoint", "log", "close"])
def test_train_is_interrupted_where_it_blocks(where: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "blocking.py").write_text(BLOCKING)
    (tmp_path / "script.py").write_text(GUEST)
    flags = {
        **{"num_envs": 2, "num_steps": 8, "num_minibatches": 1, "total_steps": 160, "verbose": 0},
        **{"checkpoint_every": 5, "num_workers": 1, "eval_episodes": 0, "report": False},
        **{"preset": "none", "run_dir": "run", "logger": "blocking:BlockingLogger"},
    }
    process = subprocess.Popen(
        [sys.executable, "script.py", json.dumps(flags)],
        cwd=tmp_path,
        env={**os.environ, "BLOCKED": f"{where} sleep", "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until((tmp_path / "reached").exists, process)
    time.sleep(0.1)
    process.send_signal(signal.Signals[name])
    try:
        output, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert output.startswith(f"{name} after step ")
    assert output.endswith(f" {CODES[name]} True\n")
    assert_saved(tmp_path / "run")
    assert nothing_left(process.pid)


THREADLESS = """
import os, resource, threading
from ppo import Callback

def refuse(thread):
    raise RuntimeError("can't start new thread")

class Threadless(Callback):
    def on_start(self, run):
        threading.Thread.start = refuse

class Cramped(Callback):
    def on_start(self, run):
        pages = int(open("/proc/self/statm").read().split()[0])
        size = pages * os.sysconf("SC_PAGE_SIZE") + (4 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Cramped", "Threadless"])
def test_checkpoints_need_no_more_threads_once_a_run_has_begun(name: str, tmp_path: Path) -> None:
    (tmp_path / "threadless.py").write_text(THREADLESS)
    flags = (*SHORT, f"--callback=threadless:{name}", "--num_workers=1")
    done = run_in(tmp_path, *flags, "--checkpoint_every=20", "--run_dir=run")
    assert (done.returncode, done.stderr) == (0, "")
    assert [int(path.stem) // 16 for path in saved(tmp_path / "run")] == [60, 80, 100]
    process = subprocess.Popen(
        command(*flags, "--total_steps=10000000", "--run_dir=stopped"),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: num_rows(tmp_path / "stopped") > 5, process)
    assert "stopped, saved in" in assert_ends(process, "SIGTERM")
    assert_saved(tmp_path / "stopped")


def test_a_run_that_gets_no_thread_for_its_checkpoints_does_not_begin(tmp_path: Path) -> None:
    refusing = THREADLESS.partition("class")[0].replace("from ppo import Callback", "")
    (tmp_path / "sitecustomize.py").write_text(f"{refusing}threading.Thread.start = refuse")
    done = run_main(
        *SHORT, f"--run_dir={tmp_path / 'run'}", env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "thread that writes checkpoints cannot be made" in done.stderr
