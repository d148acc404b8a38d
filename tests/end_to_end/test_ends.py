"""How commands go on or end when what is around them is missing, by main.py in real processes."""

import ctypes
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ppo.run.checkpoint import load
from tests.end_to_end.test_stop import (
    LONG,
    SHORT,
    TERM,
    assert_ends,
    assert_saved,
    run_in,
    start_in,
)
from tests.running import ROOT, command, events, num_rows, run_main, saved, wait_until

ITERATIONS = 100
TRIED = "the process in which environments are tried and evaluated"
PR_CAPBSET_DROP = 24  # of Linux's prctl.h
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


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
    seeds = tmp_path / "seeds"
    code, errors = run_unread(*SHORT, "--seeds=2", f"--run_dir={seeds}", unread="stdout")
    assert (code, "rror" in errors) == (0, False), errors
    assert [num_rows(seeds / name) for name in ("s0", "s1")] == [ITERATIONS] * 2


@pytest.mark.slow
def test_training_goes_on_when_nobody_reads_its_warnings(tmp_path: Path) -> None:
    flags = ("--learning_rate=1", "--checkpoint_every=1", f"--run_dir={tmp_path}")
    code, output = run_unread(*SHORT, *flags, unread="stderr")
    assert events(tmp_path, "doctor")  # there was something to say
    assert (code, num_rows(tmp_path)) == (0, ITERATIONS)
    assert "run folder" in output


def test_an_error_that_nobody_reads_has_its_exit_code() -> None:
    assert run_unread("--sed=1", unread="stderr") == (2, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "where"), [("remove", "run"), ("replace_by_folder", "run/metrics.csv")]
)
def test_training_goes_on_without_its_files_and_says_so_once_and_at_the_end(
    tmp_path: Path, act: str, where: str
) -> None:
    folder = tmp_path / "run"
    done = run_main(*meddling(act, tmp_path / where), f"--run_dir={folder}")
    table = folder / "metrics.csv"
    assert done.returncode == 1
    warning, error = done.stderr.splitlines()
    said = f"warning: {table} cannot be written (it has been removed); training continues"
    assert warning == said
    assert error.startswith(f"error: rows are missing in {table}")
    assert load(saved(folder)[-1])["iteration"] == ITERATIONS


def test_what_starts_a_command_may_ignore_that_its_children_end(tmp_path: Path) -> None:
    done = run_main(
        *(*SHORT, "--total_steps=64", "--num_workers=1", f"--run_dir={tmp_path}"),
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_leftovers_hinder_neither_checkpoints_nor_another_beginning(tmp_path: Path) -> None:
    for name in (".tmp-1-config.json", ".tmp-metrics.csv", "lock", "metrics.csv", "events.out.1"):
        (tmp_path / name).write_text("{")
    (tmp_path / "wandb").mkdir()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".tmp-2-last.safetensors").symlink_to("nowhere")
    done = run_main(*SHORT, "--checkpoint_every=20", f"--run_dir={tmp_path}", "--resume=auto")
    assert (done.returncode, done.stderr) == (0, "")
    last = tmp_path / "checkpoints" / "last.safetensors"
    assert load(last)["iteration"] == ITERATIONS
    assert not list(tmp_path.rglob(".tmp-*"))


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_can_neither_flood_nor_command_the_terminal(
    tmp_path: Path, num_workers: int
) -> None:
    flags = (f"--num_workers={num_workers}", f"--run_dir={tmp_path}")
    done = run_main(*meddling("shout", tmp_path), *flags)
    assert done.returncode == 1
    assert "RuntimeError: \\x1b[2Jloud \\x07!!!" in done.stderr
    assert "!!!\\x9b quiet" in done.stderr
    assert "\x1b" not in done.stderr
    assert max(map(len, done.stderr.splitlines())) < 11_000
    logged = (tmp_path / "events.jsonl").read_text().splitlines()
    assert max(map(len, logged), default=0) < 40_000  # message, cause and traceback


OWN = """
import sys
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

    def end(self):
        raise Own("a wheel came off")

    def loss(self, minibatch, distribution, values):
        self.calls += 1
        if self.calls == 3:
            self.end()
        return super().loss(minibatch, distribution, values)

class Exit(Loss):
    def end(self):
        sys.exit(0)

class Model(torch.nn.Module):
    def __init__(self, *arguments):
        raise Own("a wheel came off")
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("flags", "said", "code"),
    [
        ("--callback=own:Called", "callback Called raised Own in on_iteration: a wheel", 1),
        (
            "--env_name=own:Env --num_workers=0",
            "workers were lost 11 times .* 0 of own:Env raised Own: a wheel",
            1,
        ),
        (
            "--env_name=own:Env --num_workers=1",
            "workers were lost 11 times .* raised Own: a wheel",
            1,
        ),
        ("--learner=own:Loss", "a wheel", 1),
        ("--learner=own:Exit", r"something has called sys.exit\(0\)", 1),
        ("--model=own:Model", r"--model=own:Model fails \(Own: a wheel", 2),
        ("--model=exits:Any", "--model=exits:Any cannot be imported", 2),
    ],
)
def test_an_exception_of_ones_own_kind_and_an_exit_are_errors_like_any_other(
    flags: str, said: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "exits.py").write_text("import sys; sys.exit(0)")
    done = run_in(tmp_path, *SHORT, *flags.split(), "--run_dir=run")
    assert done.returncode == code, done.stderr
    assert re.match(f"error: {said}", done.stderr.splitlines()[-1])
    if code == 1:
        assert_saved(tmp_path / "run")
    if "learner" in flags:
        assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limited", "limit", "sentence"),
    [
        ("FSIZE", 4096, "shared memory for rollouts cannot be made (File too large): --num_envs"),
        ("NOFILE", 24, "worker processes cannot be made (Too many open files): --num_workers"),
        ("FSIZE", 2048, f"{TRIED} cannot be made (File too large): a limit must be higher"),
        ("NOFILE", 10, f"{TRIED} cannot be made (Too many open files): a limit must be higher"),
    ],
)
def test_a_limit_of_the_system_is_named_with_the_flag_to_lower(
    limited: str, limit: int, sentence: str, tmp_path: Path
) -> None:
    kind = getattr(resource, f"RLIMIT_{limited}")
    done = run_main(
        *(*SHORT, "--num_envs=4", "--num_workers=4", f"--run_dir={tmp_path}"),
        preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)),
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"error: {sentence}")


def without_rights() -> None:
    """Make root ask for leave to open files, as others do."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only there root can give up its rights")
@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("evaluate PLACE/run", "PLACE/run"),
        ("--resume=PLACE/run", "--resume=PLACE/run"),
        ("--env_name=CartPole-v1 --run_dir=PLACE/run --resume=auto", "--run_dir=PLACE/run"),
        ("--env_name=CartPole-v1 --seeds=2 --run_dir=PLACE/seeds", "--run_dir=PLACE/seeds"),
        ("plot RUN --output=PLACE/curves.png", "--output=PLACE/curves.png"),
        ("runs --folder=PLACE", "--folder=PLACE"),
        ("--env_name=PLACE/my_env.py:Env", "PLACE/my_env.py"),
    ],
)
def test_a_place_without_rights_is_named(
    line: str, named: str, cartpole_copy: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    named = named.replace("PLACE", str(place))
    line = line.replace("PLACE", str(place)).replace("RUN", str(cartpole_copy))
    place.chmod(0)
    try:
        done = run_main(*line.split(), preexec_fn=without_rights)
    finally:
        place.chmod(0o700)
    assert done.returncode == 2, done.stderr
    assert f"{named} cannot be" in done.stderr.splitlines()[-1]
    assert "Permission denied" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="only there root can give up its rights")
@pytest.mark.parametrize(
    ("name", "code"), [("metrics.csv", 2), ("checkpoints/000000005120.safetensors", 3)]
)
def test_what_must_not_be_read_is_not_damaged(name: str, code: int, cartpole_copy: Path) -> None:
    path = cartpole_copy / name
    before = {x: x.stat().st_size for x in cartpole_copy.rglob("*") if "lock" not in x.name}
    path.chmod(0)
    line = (f"--resume={cartpole_copy}", "--total_steps=5376")
    done = run_main(*line, preexec_fn=without_rights)
    path.chmod(0o600)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert f"{path} " in done.stderr
    assert "Permission denied" in done.stderr
    after = {x: x.stat().st_size for x in cartpole_copy.rglob("*") if "lock" not in x.name}
    assert {x: size for x, size in after.items() if x.name != "events.jsonl"} == {
        x: size for x, size in before.items() if x.name != "events.jsonl"
    }


REFUSE = """
import threading

def refuse(thread):
    raise RuntimeError("can't start new thread")
"""
THREADLESS = f"""
import os, resource
from ppo import Callback
{REFUSE}
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
    flags = (f"--callback=threadless:{name}", "--num_workers=1")
    done = run_in(tmp_path, *SHORT, *flags, "--checkpoint_every=20", "--run_dir=run")
    assert (done.returncode, done.stderr) == (0, "")
    assert [int(path.stem) // 16 for path in saved(tmp_path / "run")] == [60, 80, 100]
    process = start_in(tmp_path, *LONG, *flags, "--run_dir=stopped")
    wait_until(lambda: num_rows(tmp_path / "stopped") > 5, process)
    assert "stopped, saved in" in assert_ends(process, TERM)
    assert_saved(tmp_path / "stopped")


def test_a_run_that_gets_no_thread_for_its_checkpoints_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"{REFUSE}\nthreading.Thread.start = refuse")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run_main(*SHORT, f"--run_dir={tmp_path / 'run'}", env=environment)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "thread that writes checkpoints cannot be made" in done.stderr
