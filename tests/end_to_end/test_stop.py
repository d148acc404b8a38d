"""Signals at every moment of a command, one after the other, by main.py in real processes."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end.test_ends import LONG, SHORT, assert_saved, run_in
from tests.end_to_end.test_faults import fault
from tests.running import (
    ROOT,
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

TERM, INT, USR1, HUP = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGUSR1,
    signal.SIGHUP,
)
SLOW = pytest.mark.slow


def storm(process: subprocess.Popen, *numbers: signal.Signals) -> str:
    """Send the first signal, then the others again and again until the process is over; return
    what it said."""
    first, *others = numbers
    process.send_signal(first)
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


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ((TERM, TERM, USR1), 143),
        ((INT, TERM, HUP), 130),
        pytest.param((USR1, USR1, HUP, TERM), 143, marks=SLOW),
        pytest.param((HUP, TERM), 129, marks=SLOW),
    ],
)
def test_the_first_signal_stands_until_the_process_is_over(
    tmp_path: Path, numbers: tuple[signal.Signals, ...], code: int
) -> None:
    process = start(*LONG, "--num_workers=1", "--checkpoint_every=1000", f"--run_dir={tmp_path}")
    wait_until(lambda: num_rows(tmp_path) > 3, process)
    errors = storm(process, *numbers)
    assert (process.returncode, errors.count("\n")) == (code, 1), errors
    assert errors.startswith(f"error: {numbers[0].name} after step ")
    assert_saved(tmp_path)
    assert nothing_left(process.pid)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(TERM, USR1), (HUP, TERM)])
def test_a_signal_in_the_final_evaluation_leaves_a_run_that_is_finished_by_resuming_it(
    tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    flags = (*SHORT, "--eval_episodes=20000", "--num_workers=1", f"--run_dir={tmp_path}")
    process = start(*flags)
    wait_until(lambda: num_rows(tmp_path) == 100, process)
    time.sleep(0.3)
    errors = storm(process, *numbers)
    code = 129 if numbers[0] == HUP else 143
    assert (process.returncode, errors.count("\n")) == (code, 1), errors
    said = f"after step 1600: training is over, saved in {tmp_path}: --resume={tmp_path} does"
    assert said in errors
    assert events(tmp_path, "signal")
    assert not (tmp_path / "summary.json").exists()
    assert nothing_left(process.pid)
    done = run_main(f"--resume={tmp_path}", "--eval_episodes=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "summary.json").read_text())["evaluation"]["episodes"] == 2


@pytest.mark.slow
def test_a_run_that_is_over_is_not_undone_by_signals(tmp_path: Path) -> None:
    process = start(*SHORT, "--num_workers=1", f"--run_dir={tmp_path}")
    wait_until((tmp_path / "summary.json").exists, process)
    errors = storm(process, TERM, TERM, USR1)
    assert (process.returncode, errors) in [(0, ""), (143, errors)]
    assert "Traceback" not in errors
    assert_saved(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (LONG, "SIGTERM"),
        (("evaluate", "nowhere"), "SIGUSR1"),
        (("tune", *LONG), "SIGHUP"),
        ((*LONG, "--seeds=2"), "SIGINT"),
    ],
)
def test_a_signal_at_the_start_is_one_sentence(
    arguments: tuple[str, ...], number: str, tmp_path: Path
) -> None:
    folder = () if "nowhere" in arguments else (f"--run_dir={tmp_path}",)
    process = start(*arguments, *folder)
    wait_until(lambda: has(process, "SigCgt"), process)
    errors = storm(process, signal.Signals[number], USR1, TERM)
    code = {"SIGHUP": 129, "SIGINT": 130}.get(number, 143)
    assert (process.returncode, errors.count("\n")) == (code, 1), errors
    said = "interrupted: stopped at once" if code == 130 else f"{number} stopped the command"
    assert errors.startswith(f"error: {said}")
    assert not list(tmp_path.iterdir())
    assert nothing_left(process.pid)


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(12))
def test_a_signal_at_any_moment_of_a_start_is_one_sentence(tmp_path: Path, moment: int) -> None:
    process = start(*LONG, "--num_workers=1", f"--run_dir={tmp_path}")
    wait_until(lambda: has(process, "SigCgt"), process)
    time.sleep(moment / 8)
    number = (TERM, INT, HUP)[moment % 3]
    errors = storm(process, number)
    code = {INT: 130, HUP: 129}.get(number, 143)
    assert (process.returncode, errors.count("\n")) == (code, 1), errors
    assert nothing_left(process.pid)


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
def test_signals_at_the_end_of_all_seeds_end_them_as_one_does(tmp_path: Path) -> None:
    process = start(*SHORT, "--seeds=2", "--num_workers=0", f"--run_dir={tmp_path}")
    summaries = [tmp_path / seed / "summary.json" for seed in ("s0", "s1")]
    wait_until(lambda: all(path.exists() for path in summaries), process)
    errors = storm(process, TERM, TERM, HUP)
    assert (process.returncode, errors.count("\n")) == (143, 1), errors
    assert errors.startswith("error: SIGTERM stopped the ")
    assert nothing_left(process.pid)


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
@pytest.mark.parametrize("times", [2, 3])
def test_interrupts_in_a_row_save_the_last_iteration(tmp_path: Path, times: int) -> None:
    process = start(*fault(tmp_path, "hang", step=100), "--checkpoint_every=1000")
    wait_until((tmp_path / "marker.hang").exists, process)
    time.sleep(0.3)
    sent = time.monotonic()
    for _ in range(times):
        process.send_signal(INT)
        time.sleep(0.3)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - sent < 6
    folder = tmp_path / "run"
    last = int(metrics(folder)[-1]["step"])
    assert (process.returncode, errors) == (
        130,
        f"error: interrupted: stopped at once, saved in {folder} after step {last}\n",
    )
    assert last == 3 * 4 * 32
    assert_saved(folder)
    assert not list(folder.rglob(".tmp-*"))
    assert nothing_left(process.pid)


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 3])
def test_interrupts_that_do_not_wait_for_a_slow_disk_say_what_is_lost(
    tmp_path: Path, times: int
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_DISK)
    folder = tmp_path / "run"
    process = subprocess.Popen(
        command(*LONG, "--callback=slow:Disk", "--checkpoint_every=1000", f"--run_dir={folder}"),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: num_rows(folder) > 5, process)
    sent = time.monotonic()
    for _ in range(times):
        process.send_signal(INT)
        time.sleep(0.3)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - sent < 6
    last = metrics(folder)[-1]["step"]
    newest = folder / "checkpoints" / f"{0:012d}.safetensors"
    assert (process.returncode, errors) == (
        130,
        f"error: interrupted: stopped at once, the state after step {last} is lost: "
        f"the newest is {newest}\n",
    )
    assert saved(folder) == [newest]
    assert nothing_left(process.pid)
    done = run_in(tmp_path, f"--resume={folder}", "--callback=slow:Disk", "--total_steps=32")
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(folder.rglob(".tmp-*"))


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 3])
def test_interrupts_in_a_row_leave_the_runs_of_all_seeds_saved(tmp_path: Path, times: int) -> None:
    process = start(
        *LONG, "--seeds=2", "--num_workers=0", "--checkpoint_every=1000", f"--run_dir={tmp_path}"
    )
    wait_until(lambda: num_rows(tmp_path / "s0") > 3, process)
    for _ in range(times):
        process.send_signal(INT)
        time.sleep(0.5)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    # The runs may have ended before the second one.
    ending = r"error: (interrupted: stopped at once|SIGINT stopped the runs of all seeds).*"
    assert re.fullmatch(ending, errors.splitlines()[-1])
    assert_saved(tmp_path / "s0")
    assert nothing_left(process.pid)


@pytest.mark.parametrize("number", [TERM, pytest.param(INT, marks=SLOW)])
@pytest.mark.parametrize(
    "line",
    [
        "evaluate {run} --episodes=100000 --output={new}.json",
        pytest.param("evaluate {run} --episodes=1000 --video={new}.gif", marks=SLOW),
        pytest.param("report {run} --output={new}.html", marks=SLOW),
    ],
)
def test_a_signal_ends_a_command_that_reads_a_run(
    line: str, number: signal.Signals, cartpole_run: Path, tmp_path: Path
) -> None:
    process = start(*line.format(run=cartpole_run, new=tmp_path / "new").split())
    wait_until(lambda: has(process, "SigCgt"), process)
    time.sleep(0.3 if line.startswith("report") else 2)  # it takes about a second
    errors = storm(process, number, TERM, USR1)
    code, said = (143, "SIGTERM stopped the command") if number == TERM else (130, "interrupted")
    assert (process.returncode, errors.count("\n")) == (code, 1), errors
    assert errors.startswith(f"error: {said}")
    assert nothing_left(process.pid)
    assert not list(tmp_path.iterdir())


OWN = """
from pathlib import Path

import gymnasium
import numpy as np
import torch

from ppo import Callback, Learner


class Own(BaseException):
    pass


class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def __init__(self, always=False):
        self.always = always

    def reset(self, **arguments):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps % 20 == 0:
            raise Own("a wheel came off")
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Called(Callback):
    def on_iteration(self, run):
        if run.iteration == 2:
            raise Own("a wheel came off")


class Loss(Learner):
    calls = 0

    def loss(self, minibatch, distribution, values):
        self.calls += 1
        if self.calls == 3:
            raise Own("a wheel came off")
        return super().loss(minibatch, distribution, values)


class Model(torch.nn.Module):
    def __init__(self, *arguments):
        raise Own("a wheel came off")
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("flags", "named", "code"),
    [
        ("--callback=own:Called", "callback Called raised Own in on_iteration: ", 1),
        (
            "--env_name=own:Env --num_workers=0",
            "worker 0 was lost 4 times .* environment 0 of own:Env raised Own: ",
            1,
        ),
        ("--env_name=own:Env --num_workers=1", "worker 0 was lost 4 times .* raised Own: ", 1),
        ("--learner=own:Loss", "", 1),
        ("--model=own:Model", r"--model=own:Model fails \(Own: ", 2),
    ],
)
def test_an_exception_of_ones_own_kind_is_an_error_like_any_other(
    flags: str, named: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    done = run_in(tmp_path, *SHORT, *flags.split(), "--run_dir=run")
    assert done.returncode == code, done.stderr
    assert re.match(f"error: {named}a wheel came off", done.stderr.splitlines()[-1])
    if code == 1:
        assert_saved(tmp_path / "run")
    if "learner" in flags:
        assert done.stderr.count("\n") == 1
