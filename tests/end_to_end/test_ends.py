"""How commands end when what is around them ends, by main.py in real processes."""

import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ppo.run.checkpoint import load
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

SHORT = tuple(
    f"--{name}={value}"
    for name, value in {**TINY, "verbose": 1, "preset": "none", "total_steps": 1600}.items()
)
LONG = (*SHORT, "--total_steps=100000000")
ITERATIONS = 100


class Meddler(gymnasium.Env):
    """Do something to a path at step 50, in a process of its own or in the trainer's."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    num_steps = 0

    def __init__(self, act: str, path: str = "") -> None:
        self.act = act
        self.path = Path(path)

    def reset(self, **arguments: Any) -> tuple[np.ndarray, dict]:
        super().reset(**arguments)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: int) -> Any:
        self.num_steps += 1
        if self.num_steps == 50:
            getattr(self, self.act)()
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0, True, False, {}

    def remove(self) -> None:
        while self.path.exists():  # a checkpoint may be written at this moment
            shutil.rmtree(self.path, ignore_errors=True)

    def replace_by_folder(self) -> None:
        if self.path.is_file():  # else another environment has done it
            self.path.unlink()
            self.path.mkdir()

    def leave_link(self) -> None:
        with suppress(FileExistsError):
            self.path.symlink_to("nowhere")

    def shout(self) -> None:
        raise RuntimeError(f"\x1b[2Jloud \x07{'!' * 50_000}\x9b quiet")


def meddling(act: str, path: Path) -> tuple[str, ...]:
    """The flags of a run with such an environment."""
    about = json.dumps({"act": act, "path": str(path)})
    return (*SHORT, "--env_name=tests.end_to_end.test_ends:Meddler", f"--env_kwargs={about}")


def run_unread(*arguments: str, unread: str) -> tuple[int, str]:
    """Run main.py while nobody reads one of its outputs; return its exit code and the other one."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    buffered = {name: x for name, x in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, unread: write_end}
    done = subprocess.run(
        command(*arguments), cwd=ROOT, text=True, timeout=60, env=buffered, **pipes
    )
    os.close(write_end)
    return done.returncode, done.stdout or done.stderr or ""


@pytest.mark.slow
def test_training_goes_on_when_nobody_reads_its_output(tmp_path: Path) -> None:
    code, errors = run_unread(*SHORT, f"--run_dir={tmp_path}", unread="stdout")
    said = "--logger=console: nobody reads its output any more; training continues without it"
    assert (code, errors) == (0, f"warning: {said}\n")
    assert num_rows(tmp_path) == ITERATIONS
    assert [event["message"] for event in events(tmp_path, "logger_failed")] == [said]


@pytest.mark.slow
def test_training_goes_on_when_nobody_reads_its_warnings(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    flags = ("--learning_rate=1", "--checkpoint_every=1", f"--run_dir={tmp_path / 'run'}")
    code, output = run_unread(*SHORT, *flags, unread="stderr")
    assert events(tmp_path / "run", "doctor")  # there was something to say
    assert (code, num_rows(tmp_path / "run")) == (0, ITERATIONS)
    assert "run folder" in output


def test_an_error_that_nobody_reads_has_its_exit_code() -> None:
    assert run_unread("--sed=1", unread="stderr") == (2, "")


@pytest.mark.slow
def test_all_seeds_are_trained_when_nobody_reads_the_output(tmp_path: Path) -> None:
    code, errors = run_unread(*SHORT, "--seeds=2", f"--run_dir={tmp_path}", unread="stdout")
    assert (code, "rror" in errors) == (0, False), errors
    assert [num_rows(tmp_path / name) for name in ("s0", "s1")] == [ITERATIONS] * 2


def is_training(folder: Path) -> Callable[[], bool]:
    """Whether a run has finished some iterations more than it has now."""
    rows = num_rows(folder)
    return lambda: num_rows(folder) > rows + 2


def assert_saved(folder: Path) -> None:
    """Assert that the last whole iteration was saved."""
    assert load(saved(folder)[-1])["iteration"] == int(metrics(folder)[-1]["iteration"])


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
    wait_until(is_training(tmp_path), process)
    os.killpg(process.pid, signal.SIGHUP)
    wait_until(is_training(tmp_path), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    assert not events(tmp_path, "worker_lost")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [
        ("SIGTERM", 143),
        ("SIGINT", 130),
        ("SIGHUP", 129),
    ],
)
def test_a_signal_ends_the_runs_of_all_seeds_saved(tmp_path: Path, number: str, code: int) -> None:
    process = start(*LONG, "--seeds=3", "--num_workers=1", f"--run_dir={tmp_path}")
    begun = [tmp_path / f"s{seed}" for seed in range(min(3, len(os.sched_getaffinity(0))))]
    wait_until(lambda: all(num_rows(folder) > 3 for folder in begun), process)
    os.killpg(process.pid, signal.Signals[number])  # as a terminal sends it
    sent = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert time.monotonic() - sent < 4
    assert sorted(tmp_path.iterdir()) == begun
    assert errors.splitlines()[-1].startswith(f"error: {number} stopped the runs of all seeds")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--seeds=99999999999"], "--seeds=99999999999: expected integer >= 1 and <= 1000"),
        (["--seed=4294967295", "--seeds=2"], "--seed=4294967296: expected integer >= 0 and <="),
    ],
)
def test_seeds_that_there_are_not_are_refused_at_once(
    flags: list[str], sentence: str, tmp_path: Path
) -> None:
    done = run_main(*SHORT, *flags, f"--run_dir={tmp_path}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {sentence}")
    assert not list(tmp_path.iterdir())


ENDING = """
import sys
from ppo import Learner

class Ending(Learner):
    calls = 0

    def loss(self, minibatch, distribution, values):
        self.calls += 1
        if self.calls == 5:
            sys.exit(0)
        return super().loss(minibatch, distribution, values)
"""


@pytest.mark.slow
def test_an_exit_in_a_learner_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text(ENDING)
    done = run_in(tmp_path, *SHORT, "--learner=ending:Ending", "--run_dir=run", "--debug")
    assert done.returncode == 1
    assert "in loss\n    sys.exit(0)" in done.stderr  # where it was called
    assert done.stderr.splitlines()[-1].startswith("error: something has called sys.exit(0)")
    assert load(saved(tmp_path / "run")[-1])["iteration"] == 4


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(*arguments), cwd=folder, capture_output=True, text=True, timeout=60
    )


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["model", "optimizer", "learner"])
def test_an_exit_while_a_flag_is_imported_is_an_error(flag: str, tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text("import sys; sys.exit(0)")
    done = run_in(tmp_path, *SHORT, f"--{flag}=ending:Ending")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: --{flag}=ending:Ending cannot be imported")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "where"), [("remove", "run"), ("replace_by_folder", "run/metrics.csv")]
)
def test_training_goes_on_without_its_files_and_says_so_once_and_at_the_end(
    tmp_path: Path, act: str, where: str
) -> None:
    folder = tmp_path / "run"
    done = run_main(*meddling(act, tmp_path / where), f"--run_dir={folder}")
    warning, error = [line for line in done.stderr.splitlines() if "metrics.csv" in line]
    assert done.returncode == 1
    assert warning == (
        f"warning: {folder / 'metrics.csv'} cannot be written (it has been removed); "
        "training continues"
    )
    assert error.startswith(f"error: rows are missing in {folder / 'metrics.csv'}")
    assert done.stderr.splitlines() == [warning, error]
    assert load(saved(folder)[-1])["iteration"] == ITERATIONS


@pytest.mark.slow
def test_a_leftover_does_not_hinder_checkpoints(tmp_path: Path) -> None:
    leftover = tmp_path / "checkpoints" / ".tmp-last.safetensors"
    done = run_main(
        *meddling("leave_link", leftover), "--checkpoint_every=20", f"--run_dir={tmp_path}"
    )
    assert (done.returncode, done.stderr) == (0, "")
    last = leftover.with_name("last.safetensors")
    assert load(last)["iteration"] == ITERATIONS
    assert not list(last.parent.glob(".tmp-*"))


@pytest.mark.slow
def test_a_run_killed_while_it_began_can_be_begun_again(tmp_path: Path) -> None:
    for name in (".tmp-config.json", ".tmp-metrics.csv", "lock", "metrics.csv", "events.out.1"):
        (tmp_path / name).write_text("{")
    (tmp_path / "wandb").mkdir()
    done = run_main(*SHORT, "--total_steps=16", f"--run_dir={tmp_path}", "--resume=auto")
    assert (done.returncode, done.stderr) == (0, "")
    assert num_rows(tmp_path) == 1


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_can_neither_flood_nor_command_the_terminal(
    tmp_path: Path, num_workers: int
) -> None:
    done = run_main(
        *meddling("shout", tmp_path), f"--num_workers={num_workers}", f"--run_dir={tmp_path}"
    )
    assert done.returncode == 1
    assert "RuntimeError: \\x1b[2Jloud \\x07!!!" in done.stderr
    assert "!!!\\x9b quiet" in done.stderr
    assert "\x1b" not in done.stderr
    lines = done.stderr.splitlines()
    assert max(map(len, lines)) < 11_000
    logged = (tmp_path / "events.jsonl").read_text().splitlines()
    assert max(map(len, logged), default=0) < 40_000  # message, cause and traceback


INTERRUPT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.parametrize("name", ["ppo.commands", "argparse", "gymnasium", "torch", "rich.console"])
def test_an_interrupt_of_an_import_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT)
    done = run_main(
        *SHORT,
        f"--run_dir={tmp_path / 'run'}",
        env={**os.environ, "PYTHONPATH": str(tmp_path), "INTERRUPTED": name},
    )
    assert (done.returncode, done.stderr.count("\n")) == (130, 1), done.stderr
    assert done.stderr.startswith("error: interrupted")


@pytest.mark.slow
def test_a_folder_that_is_no_text_is_refused(tmp_path: Path) -> None:
    done = run_main(*SHORT, os.fsdecode(b"--run_dir=" + bytes(tmp_path) + b"/\xff\xfe"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: --run_dir={tmp_path}/\\udcff\\udcfe: expected string")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limited", "limit", "sentence"),
    [
        ("FSIZE", 4096, "shared memory for rollouts cannot be made (File too large): --num_envs"),
        ("NOFILE", 24, "worker processes cannot be made (Too many open files): --num_workers"),
    ],
)
def test_a_limit_of_the_system_is_named_with_the_flag_to_lower(
    limited: str, limit: int, sentence: str, tmp_path: Path
) -> None:
    kind = getattr(resource, f"RLIMIT_{limited}")
    done = run_main(
        *SHORT,
        "--num_envs=4",
        "--num_workers=4",
        f"--run_dir={tmp_path}",
        preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)),
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"error: {sentence}")
