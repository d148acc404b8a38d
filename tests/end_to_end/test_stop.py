"""Signals, kills and pauses at every moment of a command, by main.py in real processes."""

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppo.run.checkpoint import load
from tests.end_to_end.test_faults import fault
from tests.running import (
    ROOT,
    TINY,
    command,
    events,
    metrics,
    nothing_left,
    num_rows,
    run_main,
    saved,
    start,
    wait_until,
)

TERM, INT, USR1, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP
CODES = {TERM: 143, INT: 130, USR1: 143, HUP: 129}
SLOW = pytest.mark.slow
F_SETPIPE_SZ = 1031  # of Linux's fcntl.h
SHORT = tuple(
    f"--{name}={value}"
    for name, value in {**TINY, "verbose": 1, "preset": "none", "total_steps": 1600}.items()
)
LONG = (*SHORT, "--total_steps=100000000")


def storm(process: subprocess.Popen, first: signal.Signals, *others: signal.Signals) -> str:
    """Send the first signal to the process group, then the others to its leader again and again
    until that is over; return what it said."""
    os.killpg(process.pid, first)
    deadline = time.monotonic() + 60
    while has(process, "ShdPnd", first) and time.monotonic() < deadline:
        time.sleep(0.001)  # of two that wait, either may be the first
    while process.poll() is None and time.monotonic() < deadline:
        for number in others:
            process.send_signal(number)
            time.sleep(0.002)
    return process.communicate(timeout=1)[1]


def has(process: subprocess.Popen, kind: str, number: signal.Signals = TERM) -> bool:
    """Whether a signal is caught (SigCgt), ignored (SigIgn) or waits (ShdPnd) in a process."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:  # it is over
        return False
    mask = next((line.split()[1] for line in status.splitlines() if line.startswith(kind)), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def spawned(parent: int) -> list[int]:
    """The processes that multiprocessing has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    lines = {int(child): Path(f"/proc/{child}/cmdline").read_text() for child in children}
    return [child for child, line in lines.items() if "--multiprocessing-fork" in line]


def assert_saved(folder: Path) -> None:
    """Assert that the last whole iteration was saved."""
    assert load(saved(folder)[-1])["iteration"] == int(metrics(folder)[-1]["iteration"])
    assert not list(folder.rglob(".tmp-*"))


def assert_ends(process: subprocess.Popen, number: signal.Signals) -> str:
    """Send a signal and assert that it ends the process and its children; return what it said."""
    process.send_signal(number)
    try:
        _, errors = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == CODES[number]
    assert (errors or "").count("\n") <= 1
    assert nothing_left(process.pid)
    return errors or ""


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return run_main(*arguments, cwd=folder, timeout=60)


def start_in(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen:
    """Start main.py in a folder, as the leader of a process group."""
    pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(
        command(*arguments), cwd=folder, text=True, start_new_session=True, **pipes
    )


# While it starts, trains, evaluates and ends.


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("numbers", "flags"),
    [((TERM, TERM, USR1), ()), ((INT, TERM, HUP), ()), ((HUP, TERM), ("--debug",))],
)
def test_the_first_signal_saves_the_run_and_stands_until_it_is_over(
    tmp_path: Path, numbers: tuple[signal.Signals, ...], flags: tuple[str, ...]
) -> None:
    process = start(*LONG, *flags, "--num_workers=1", f"--run_dir={tmp_path}")
    wait_until(lambda: num_rows(tmp_path) > 3, process)
    errors = storm(process, *numbers)
    assert process.returncode == CODES[numbers[0]]
    said = f"saved in {tmp_path}: python main.py --resume={tmp_path} continues"
    last = metrics(tmp_path)[-1]["step"]
    assert errors == f"{numbers[0].name} after step {last}: stopped, {said}\n"
    assert_saved(tmp_path)
    assert nothing_left(process.pid)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (LONG, TERM),
        (("evaluate", "nowhere"), USR1),
        (("tune", *LONG), HUP),
        ((*LONG, "--seeds=2"), INT),
    ],
)
def test_a_signal_at_the_start_is_one_sentence(
    arguments: tuple[str, ...], number: signal.Signals, tmp_path: Path
) -> None:
    folder = () if "nowhere" in arguments else (f"--run_dir={tmp_path}",)
    process = start(*arguments, *folder)
    wait_until(lambda: has(process, "SigCgt"), process)
    errors = storm(process, number, USR1, TERM)
    assert (process.returncode, errors.count("\n")) == (CODES[number], 1), errors
    said = "interrupted: stopped" if number == INT else f"{number.name} stopped the command"
    assert errors.startswith(said)
    assert not list(tmp_path.iterdir())
    assert nothing_left(process.pid)


@pytest.mark.slow
def test_a_signal_at_any_moment_of_a_start_is_one_sentence(tmp_path: Path) -> None:
    for moment in range(9):
        process = start(*LONG, "--num_workers=1", f"--run_dir={tmp_path / str(moment)}")
        wait_until(lambda process=process: has(process, "SigCgt"), process)
        time.sleep(moment / 6)
        number = (TERM, INT, HUP)[moment % 3]
        errors = storm(process, number)
        assert (process.returncode, errors.count("\n")) == (CODES[number], 1), errors
        assert nothing_left(process.pid)


@pytest.mark.slow
def test_a_signal_in_the_final_evaluation_leaves_a_run_that_is_finished_by_resuming_it(
    tmp_path: Path,
) -> None:
    endless = "--env_name=tests.misbehaving:Endless"
    process = start(
        *SHORT, endless, "--eval_episodes=2", "--num_workers=1", f"--run_dir={tmp_path}"
    )
    wait_until(lambda: num_rows(tmp_path) == 100, process)
    time.sleep(0.3)
    errors = storm(process, TERM, USR1)
    assert (process.returncode, errors.count("\n")) == (143, 1), errors
    resume = f"python main.py --resume={tmp_path} {endless}"
    assert f"step 1600: training is over, saved in {tmp_path}: {resume} does the rest" in errors
    assert not (tmp_path / "summary.json").exists()
    assert nothing_left(process.pid)
    done = run_main(f"--resume={tmp_path}", endless, "--eval_max_steps=9")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "summary.json").read_text())["evaluation"]["episodes"] == 2


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("evaluate {run} --episodes=100000 --output={new}.json", TERM),
        ("evaluate {run} --episodes=1000 --video={new}.gif", INT),
        ("report {run} --output={new}.html", TERM),
    ],
)
def test_a_signal_ends_a_command_that_reads_a_run(
    line: str, number: signal.Signals, cartpole_run: Path, tmp_path: Path
) -> None:
    process = start(*line.format(run=cartpole_run, new=tmp_path / "new").split())
    wait_until(lambda: has(process, "SigCgt"), process)
    time.sleep(0.3 if line.startswith("report") else 2)  # it takes about a second
    errors = storm(process, number, TERM, USR1)
    assert (process.returncode, errors.count("\n")) == (CODES[number], 1), errors
    said = "interrupted" if number == INT else "SIGTERM stopped the command"
    assert errors.startswith(said)
    assert nothing_left(process.pid)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_in_the_background_of_a_script_obeys_ctrl_c_too(tmp_path: Path) -> None:
    """A shell without job control starts what is in its background with SIGINT ignored."""
    program = f"{sys.executable} -c 'import signal; print(signal.getsignal(2) == 1)' & wait"
    assert subprocess.check_output(["sh", "-c", program], text=True) == "True\n"
    line = shlex.join(command(*LONG, "--num_workers=1", f"--run_dir={tmp_path}"))
    text = f"{line} >/dev/null & echo $!; wait $!; echo $?"
    with subprocess.Popen(["sh", "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout
        trainer = int(shell.stdout.readline())
        wait_until(lambda: num_rows(tmp_path) > 3, shell)
        os.kill(trainer, INT)
        assert shell.stdout.readline() == "130\n"
    assert_saved(tmp_path)


@pytest.mark.slow
def test_workers_leave_signals_to_the_trainer(tmp_path: Path) -> None:
    process = start(*LONG, "--num_workers=2", f"--run_dir={tmp_path}")
    wait_until(lambda: num_rows(tmp_path) > 2, process)
    workers = spawned(process.pid)
    assert len(workers) >= 2
    for number in (TERM, INT, USR1, HUP) * 5:  # as a scheduler may send them to all processes
        for worker in workers:
            os.kill(worker, number)
        time.sleep(0.02)
    rows = num_rows(tmp_path)
    wait_until(lambda: num_rows(tmp_path) > rows + 2, process)
    os.killpg(process.pid, TERM)
    assert process.wait(20) == 143
    assert not events(tmp_path, "worker_lost")


@pytest.mark.slow
def test_a_run_is_saved_when_its_terminal_goes_away(tmp_path: Path) -> None:
    line = command(*LONG, "--num_workers=2", f"--run_dir={tmp_path}")
    process, terminal = pty.fork()
    if not process:
        os.chdir(ROOT)
        os.execv(line[0], line)
    deadline = time.monotonic() + 60
    while num_rows(tmp_path) < 3 and time.monotonic() < deadline:
        os.read(terminal, 65536)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert_saved(tmp_path)
    assert [event["signal"] for event in events(tmp_path, "signal")] == ["SIGHUP"]
    assert not events(tmp_path, "worker_lost")
    assert nothing_left(process)


@pytest.mark.slow
def test_a_run_below_nohup_goes_on_without_its_terminal(tmp_path: Path) -> None:
    process = start(
        *LONG,
        "--num_workers=2",
        f"--run_dir={tmp_path}",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    for _ in range(2):
        rows = num_rows(tmp_path)
        wait_until(lambda rows=rows: num_rows(tmp_path) > rows + 2, process)
        os.killpg(process.pid, HUP)
    process.send_signal(TERM)
    assert process.wait(20) == 143
    assert not events(tmp_path, "worker_lost")


# Where something hangs or blocks.


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[TERM], [USR1], [HUP], [INT, INT]])
def test_a_signal_ends_a_run_whose_environment_hangs(
    tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    process = hanging(tmp_path, "hang")
    sent = time.monotonic()
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.3)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - sent < 6
    folder = tmp_path / "run"
    last = 3 * 4 * 32
    resume = f"python main.py --resume={folder} "
    said = f"{numbers[0].name} after step {last}: stopped, saved in {folder}: {resume}"
    if numbers == [INT, INT]:
        said = f"interrupted: stopped at once, saved in {folder} after step {last}\n"
    assert (process.returncode, errors.count("\n")) == (CODES[numbers[0]], 1), errors
    assert errors.startswith(said)
    assert int(metrics(folder)[-1]["step"]) == last
    assert_saved(folder)
    assert nothing_left(process.pid)


def hanging(tmp_path: Path, kind: str) -> subprocess.Popen:
    """A run in whose fourth iteration an environment hangs."""
    process = start(*fault(tmp_path, kind, step=100), "--checkpoint_every=1000")
    wait_until((tmp_path / f"marker.{kind}").exists, process)
    time.sleep(0.3)
    return process


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("kind", "kill"), [("", os.kill), ("hang", os.kill), ("stop", os.killpg)])
def test_workers_die_with_the_trainer(tmp_path: Path, kind: str, kill: Callable) -> None:
    before = set(os.listdir("/dev/shm"))
    folder = tmp_path / "run"
    if kind:
        process = hanging(tmp_path, kind)
    else:
        process = start(*LONG, "--num_workers=2", f"--run_dir={folder}")
        wait_until(lambda: num_rows(folder) > 1, process)
    kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert nothing_left(process.pid)
    assert set(os.listdir("/dev/shm")) <= before
    assert all(load(path) for path in saved(folder))


SLOW_DISK = """
import time
from ppo import Callback
from ppo.run import checkpoint

class Disk(Callback):
    def on_iteration(self, run):
        if run.iteration == 3:
            time.sleep(2)  # until the first checkpoint has been written and read back
            checkpoint._sync = lambda path: time.sleep(30)
"""


@pytest.mark.slow
def test_interrupts_that_do_not_wait_for_a_slow_disk_say_what_is_lost(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_DISK)
    folder = tmp_path / "run"
    flags = ("--callback=slow:Disk", "--checkpoint_every=1000", f"--run_dir={folder}")
    process = start_in(tmp_path, *LONG, *flags)
    wait_until(lambda: num_rows(folder) > 5, process)
    sent = time.monotonic()
    for _ in range(2):
        process.send_signal(INT)
        time.sleep(0.3)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - sent < 6
    last = metrics(folder)[-1]["step"]
    newest = folder / "checkpoints" / f"{0:012d}.safetensors"
    lost = f"the state after step {last} is lost: the newest is {newest}"
    said = f"interrupted: stopped at once, {lost}\n"
    assert (process.returncode, errors) == (130, said)
    assert saved(folder) == [newest]
    assert nothing_left(process.pid)
    done = run_in(tmp_path, f"--resume={folder}", "--callback=slow:Disk", "--total_steps=32")
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(folder.rglob(".tmp-*"))


# What blocks in a method that BLOCKED names, in one of several ways.
BLOCKING = """
import ctypes, os, time
from ppo import Callback
from ppo.run.loggers.logger import Logger

def sleep():
    time.sleep(1000)

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

class BlockingLogger(Logger):
    calls = 0

    def __post_init__(self):
        reach("init")

    def log(self, metrics, histograms):
        self.calls += 1
        if self.calls == 4:
            reach("log")

    def close(self):
        reach("close")
"""
BLOCKED_RUN = {
    **TINY,
    **{"total_steps": 160, "checkpoint_every": 5, "preset": "none", "num_workers": 1},
}
OWN = ("--callback=blocking:Blocking", "--logger=blocking:BlockingLogger")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "way", "step", "number"),
    [
        ("init", "sleep", None, TERM),
        ("on_start", "swallow", 0, INT),
        ("on_iteration", "sleep", 32, TERM),
        ("log", "in_c", 64, INT),
        ("on_checkpoint", "swallow", 80, HUP),
        ("on_checkpoint", "in_c", 80, INT),
        ("close", "in_c", 160, TERM),
    ],
)
def test_a_signal_is_heard_while_a_callback_or_a_logger_blocks(
    where: str, way: str, step: int | None, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "blocking.py").write_text(BLOCKING)
    flags = [f"--{name}={x}" for name, x in BLOCKED_RUN.items()]
    environment = {**os.environ, "BLOCKED": f"{where} {way}"}
    process = start_in(tmp_path, *flags, *OWN, "--run_dir=run", env=environment)
    wait_until((tmp_path / "reached").exists, process)
    time.sleep(0.1)
    errors = assert_ends(process, number)
    if step is None:
        assert errors.startswith(f"{number.name}")
        return
    folder = tmp_path / "run"
    assert errors.startswith(f"{number.name} after step {step}: ")
    assert f"saved in {folder}" in errors
    assert int(saved(folder)[-1].stem) == step
    if step:
        assert_saved(folder)
    if where == "on_checkpoint":
        assert [event["signal"] for event in events(folder, "signal")] == [number.name]
        for arguments in (["--resume=run"], [*flags, "--run_dir=whole"]):
            done = run_in(tmp_path, *arguments, *OWN)
            assert (done.returncode, done.stderr) == (0, "")
        assert saved(folder)[-1].read_bytes() == saved(tmp_path / "whole")[-1].read_bytes()


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
    env = flags.pop("env_name")
    train(env, **{**flags, "logger": "none", "run_dir": "first"})
    before = state()
    try:
        train(env, callbacks=[blocking.Blocking()], **flags)
    except Interrupted as error:
        print(error, error.exit_code, before == state())
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("where", "number"), [("on_checkpoint", TERM), ("close", INT)])
def test_train_is_interrupted_where_it_blocks(
    where: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "blocking.py").write_text(BLOCKING)
    (tmp_path / "script.py").write_text(GUEST)
    flags = {**BLOCKED_RUN, "run_dir": "run", "logger": OWN[1].split("=")[1]}
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
    process.send_signal(number)
    try:
        output, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert output.startswith(f"{number.name} after step ")
    assert output.endswith(f" {CODES[number]} True\n")
    assert_saved(tmp_path / "run")
    assert nothing_left(process.pid)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "number"), [("terminal", TERM), ("both", TERM), ("stdout", INT)]
)
def test_a_signal_is_heard_while_nobody_reads_a_full_pipe_or_a_stopped_terminal(
    output: str, number: signal.Signals, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty() if output == "terminal" else os.pipe()  # as by Ctrl-S
    if output != "terminal":
        fcntl.fcntl(theirs, F_SETPIPE_SZ, 4096)
    errors = subprocess.PIPE if output == "stdout" else theirs
    flags = (*LONG, "--log_every=1", f"--run_dir={tmp_path}")
    process = start_in(ROOT, *flags, stdout=theirs, stderr=errors)
    os.close(theirs)

    def stands() -> bool:
        rows = num_rows(tmp_path)
        time.sleep(1)
        return 0 < rows == num_rows(tmp_path)

    wait_until(stands, process)
    said = assert_ends(process, number)
    os.close(ours)
    assert said.startswith(f"{number.name} after step " if output == "stdout" else "")
    assert_saved(tmp_path)


# Runs of several seeds.


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[TERM], [HUP], [INT], [INT, INT]])
def test_a_signal_ends_the_runs_of_all_seeds_saved(
    tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    process = start(*LONG, "--seeds=3", "--num_workers=1", f"--run_dir={tmp_path}")
    begun = [tmp_path / f"s{seed}" for seed in range(min(3, len(os.sched_getaffinity(0))))]
    wait_until(lambda: all(num_rows(folder) > 3 for folder in begun), process)
    sent = time.monotonic()
    for number in numbers:
        os.killpg(process.pid, number)  # as a terminal sends it
        time.sleep(0.3)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == CODES[numbers[0]], errors
    assert time.monotonic() - sent < 5
    assert sorted(tmp_path.iterdir()) == begun
    # The runs may have ended before the second one.
    ending = f"(interrupted: stopped at once|{numbers[0].name} stopped the runs of all seeds)"
    assert re.match(ending, errors.splitlines()[-1])
    for folder in begun:
        assert_saved(folder)
    assert not trainers_in(tmp_path)


def trainers_in(folder: Path) -> list[str]:
    """The processes that were started with a folder in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text()
        except OSError:  # it has just ended
            continue
        if str(folder) in line:
            found.append(line)
    return found


@pytest.mark.slow
def test_the_runs_of_seeds_die_with_their_command(tmp_path: Path) -> None:
    process = start(*LONG, "--seeds=2", "--num_workers=1", f"--run_dir={tmp_path}")
    wait_until(lambda: num_rows(tmp_path / "s0") > 3, process)
    process.kill()
    process.communicate(timeout=20)
    deadline = time.monotonic() + 1
    while trainers_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not trainers_in(tmp_path)


# Processes that are stopped, or end while others start them or talk to them.


@pytest.mark.slow
def test_a_worker_that_hangs_before_it_reads_long_episodes_is_noticed(tmp_path: Path) -> None:
    """Its open episodes do not fit in a pipe, and as it is started again, it hangs."""
    wide = ("--env_name=tests.misbehaving:Wide", "--num_workers=1")
    run = (*SHORT, *wide, "--num_steps=1024", "--total_steps=4096", f"--run_dir={tmp_path}")
    assert run_main(*run).returncode == 0
    hang = {"where": "constructor", "what": "hang_in_c", "within": "worker"}
    again = (f"--resume={tmp_path}", *wide, "--total_steps=8192", "--reset_timeout=2")
    process = start(*again, env={**os.environ, "MISBEHAVE": json.dumps(hang)})
    _, errors = process.communicate(timeout=30)
    said = "worker 0 hung in the start of environment 0: over 2 s (--reset_timeout)"
    assert (process.returncode, errors.splitlines()[-1:]) == (1, [f"error: {said}"])
    assert nothing_left(process.pid)


PAUSED = (
    *(*SHORT, "--env_name=tests.starting:Slow", "--total_steps=32", "--verbose=0"),
    *("--step_timeout=1.5", "--reset_timeout=60"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_workers", "inference", "at"),
    [(2, "worker", 1), (2, "learner", 1), (1, "worker", 0), (1, "worker", 2)],
)
def test_a_pause_of_the_whole_job_changes_nothing(
    tmp_path: Path, num_workers: int, inference: str, at: int
) -> None:
    flags = (
        *(*PAUSED, "--eval_episodes=2", "--eval_max_steps=8"),
        *(f"--num_workers={num_workers}", f"--inference={inference}"),
    )
    whole = run_main(*flags, f"--run_dir={tmp_path / 'whole'}")
    assert (whole.returncode, whole.stderr) == (0, "")
    folder = tmp_path / "run"
    process = start(*flags, f"--run_dir={folder}")
    if at == 0:  # in the first look
        wait_until(lambda: len(spawned(process.pid)) == 1, process)
        time.sleep(1)
    else:  # in the second rollout; in the evaluation
        wait_until(lambda: num_rows(folder) >= at, process)
        time.sleep(0.3)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(2.5)
    os.killpg(process.pid, signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert metrics(folder) == metrics(tmp_path / "whole")
    assert not events(folder, "worker_lost")


@pytest.mark.slow
@pytest.mark.parametrize("who", ["worker", "trainer"])
def test_a_pause_of_one_process_is_noticed_where_it_is_a_workers(tmp_path: Path, who: str) -> None:
    folder = tmp_path / "run"
    process = start(*PAUSED, "--num_workers=1", f"--run_dir={folder}")
    wait_until(lambda: num_rows(folder) >= 1, process)
    stopped = spawned(process.pid)[-1] if who == "worker" else process.pid
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(2.5)
    if who == "trainer":
        os.kill(stopped, signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert len(events(folder, "worker_lost")) == (who == "worker")


@pytest.mark.slow
def test_a_large_network_is_not_evaluated_by_a_process_that_is_stopped(tmp_path: Path) -> None:
    process = start(
        *SHORT,
        "--total_steps=16000",
        "--eval_episodes=2",
        "--hidden_size=256",
        "--step_timeout=1",
        "--reset_timeout=1",
        f"--run_dir={tmp_path}",
    )
    wait_until(lambda: num_rows(tmp_path) > 2, process)
    (isolated,) = spawned(process.pid)
    os.kill(isolated, signal.SIGSTOP)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "evaluation hung in the close of environment CartPole-v1: over 1 s" in errors
    assert nothing_left(process.pid)


END_AS_IT_STARTS = """
import multiprocessing.util, os, signal, sys

start = multiprocessing.util.spawnv_passfds

def start_and_end(path, line, handles):
    process = start(path, line, handles)
    if "--multiprocessing-fork" in line:
        os.kill(os.getpid(), signal.SIGKILL)
    return process

multiprocessing.util.spawnv_passfds = start_and_end
"""


def test_a_process_whose_parent_is_killed_as_it_starts_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(END_AS_IT_STARTS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run_main(*SHORT, f"--run_dir={tmp_path / 'run'}", env=environment)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
