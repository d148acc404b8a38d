"""Several ranks, each with its share of the environments."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ppo.config.config import Config
from ppo.errors import ConfigError, Interrupted
from ppo.extras.distributed.launch import complete, join
from ppo.extras.distributed.ranks import Launched, Ranks, check_settings, choose_gpu
from ppo.extras.distributed.torchrun import LAUNCH
from ppo.peers import Peers
from ppo.run.checkpoint import load
from ppo.system import hardware
from tests.end_to_end.test_faults import fault
from tests.extras.distributed.rank import numbers
from tests.running import ROOT, events, metrics, run_main

SMALL = (
    "--env_name=CartPole-v1",
    "--preset=none",
    "--num_envs=4",
    "--num_steps=32",
    "--eval_episodes=0",
)
TWO_RANKS = "--standalone --nproc_per_node=2"
QUIET = ("--logger=none", "--report=False")


def launch(
    *arguments: str,
    program: str = str(ROOT / "main.py"),
    options: str = TWO_RANKS,
    max_restarts: int = 0,
) -> subprocess.Popen:
    """Start ranks of a program by torchrun, in a process group of its own."""
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *options.split(),
        f"--max-restarts={max_restarts}",
    ]
    launcher += program.split()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*launcher, *arguments], cwd=ROOT, start_new_session=True, **streams)


@pytest.fixture
def torchrun() -> Iterator:
    """Start ranks as launch does, and end all that is left of them afterwards."""
    started: list[subprocess.Popen] = []

    def start(*arguments: str, **options: Any) -> subprocess.Popen:
        started.append(launch(*arguments, **options))
        return started[-1]

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class Two(Ranks):
    """Stands in for two ranks, of which the other one gives a value of its own."""

    def __init__(self, other: Any, rank: int = 0) -> None:
        self.other = other
        self.rank, self.size = rank, 2
        self.is_first = not rank

    def gather(self, value: Any) -> list[Any]:
        return [value, self.other]


def ranks_of(launcher: subprocess.Popen) -> list[int]:
    path = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    return [int(child) for child in path.read_text().split()]


def wait_for(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def resumptions(run: Path) -> list[int]:
    """Return the steps from which a run was resumed."""
    path = run / "events.jsonl"
    events = map(json.loads, path.read_text().splitlines() if path.exists() else [])
    return [event["step"] for event in events if event["kind"] == "resumed"]


def step_of(run: Path) -> int:
    """Return the last step in a run's metrics."""
    return int(metrics(run)[-1]["step"]) if (run / "metrics.csv").exists() and metrics(run) else 0


@pytest.mark.slow
def test_what_ranks_exchange(torchrun, tmp_path: Path) -> None:
    done = torchrun(str(tmp_path), program="--module tests.extras.distributed.rank")
    assert done.wait(120) == 0, done.stderr.read()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert (first.pop("failed"), second.pop("failed")) == (
        ["no such thing", False],
        ["no such thing", True],
    )
    assert first == second  # weights after five iterations too, to the last bit
    samples = np.concatenate([numbers(0), numbers(1)])
    mean, variance, count = first["moments"]
    assert count == len(samples)
    np.testing.assert_allclose(mean, samples.mean(0), rtol=1e-12)
    np.testing.assert_allclose(variance, samples.var(0), rtol=1e-12)
    assert first["gradients"] == [1.5] * 4
    assert first["large"] == [1.5]
    assert first["metrics"] == {"loss": 3.0, "norm": 0.5}
    assert (first["gathered"], first["told"]) == ([0, 1], "from 0")
    assert first["same"] == [True, False]
    assert first["seconds"] == [True, {"seconds_exchanging": 0.0}]
    assert first["left"] == []  # a thread that outlives the ranks may abort the end of the process


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", pytest.param("lstm", marks=pytest.mark.slow)])
def test_the_gradient_of_all_rows_is_one_process_s(model: str, torchrun, tmp_path: Path) -> None:
    sizes = (f"--model={model}", "--hidden_size=16", "--num_iterations=1", "--num_minibatches=1")
    one_step = "--optimizer=torch.optim:SGD --learning_rate=1 --num_epochs=1 --max_grad_norm=0"
    flags = (*SMALL, *QUIET, *sizes, *one_step.split(), "--normalize_advantages=none")
    one = run_main(*flags, "--num_workers=1", f"--run_dir={tmp_path / 'one'}")
    assert one.returncode == 0, one.stderr
    two = torchrun(*flags, f"--run_dir={tmp_path / 'two'}")
    assert two.wait(120) == 0, two.stderr.read()
    checkpoints = [tmp_path / run / "checkpoints" for run in ("one", "two")]
    before = load(checkpoints[0] / "000000000000.safetensors")
    one, two = (load(folder / "last.safetensors") for folder in checkpoints)
    names = [name for name in before if name.startswith("model.")]
    largest = max((before[name] - one[name]).abs().max() for name in names)
    assert largest > 0.01
    for name in names:
        torch.testing.assert_close(
            before[name] - two[name], before[name] - one[name], rtol=0, atol=1e-6
        )
    assert two.keys() == one.keys()
    for name in ("next.observations", "normalize_observation.mean", "episodes.begun"):
        torch.testing.assert_close(two[name], one[name], rtol=1e-12, atol=0)
    first, second = (metrics(tmp_path / run)[0] for run in ("one", "two"))
    assert second.keys() == first.keys()
    headers = [(tmp_path / run / "metrics.csv").read_text() for run in ("one", "two")]
    assert ["seconds_exchanging" in header for header in headers] == [False, True]
    for name in ("episodes", "episode_return_mean", "loss", "entropy"):
        assert float(first[name]) == pytest.approx(float(second[name]), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        "--normalize_advantages=rollout --batch_size=48 --target_kl=0.001 --learning_rate=0.003",
        "--env_name=tests.teams:Relay --num_envs=12 --batch_size=24",
    ],
)
def test_two_ranks_repeat_their_bits(flags: str, torchrun, tmp_path: Path) -> None:
    line = (*SMALL, *QUIET, *flags.split(), "--num_iterations=5", "--num_minibatches=2")
    states = []
    for name in ("once", "again"):
        done = torchrun(*line, f"--run_dir={tmp_path / name}")
        assert done.wait(120) == 0, done.stderr.read()
        states.append(load(tmp_path / name / "checkpoints" / "last.safetensors"))
    once, again = states
    assert once["iteration"] == 5
    for name, value in once.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, again[name]), name


@pytest.mark.slow
def test_a_run_of_two_ranks_goes_on_in_one_process_and_in_two(torchrun, tmp_path: Path) -> None:
    run = tmp_path / "run"
    flags = (*SMALL, *QUIET, f"--run_dir={run}", "--num_iterations=6")
    assert torchrun(*flags).wait(120) == 0
    copy = shutil.copytree(run, tmp_path / "copy", symlinks=True)
    assert run_main(f"--resume={run}", "--num_iterations=9").returncode == 0
    assert torchrun(f"--resume={copy}", "--num_iterations=9").wait(120) == 0
    for folder in (run, copy):
        rows = metrics(folder)
        assert [int(row["iteration"]) for row in rows] == [*range(1, 10)]
        assert rows[-1]["faults/episodes_lost"] == "0"
    assert metrics(run)[6]["episodes"] == metrics(copy)[6]["episodes"]  # of all environments


@pytest.mark.slow
def test_a_rank_that_is_killed_costs_only_what_was_not_saved(torchrun, tmp_path: Path) -> None:
    run = tmp_path / "run"
    flags = (*SMALL, *QUIET, "--total_steps=12800", "--checkpoint_every=20", f"--run_dir={run}")
    launcher = torchrun(*flags, max_restarts=2)
    for number in (1, 2):
        wait_for(lambda: len(resumptions(run)) == number - 1 and step_of(run) > 2560 * number)  # noqa: B023
        os.kill(ranks_of(launcher)[number % 2], signal.SIGKILL)
    assert launcher.wait(120) == 0
    assert json.loads((run / "summary.json").read_text())["steps"] == 12800
    assert len(resumptions(run)) == 2
    assert all(step % 2560 == 0 for step in resumptions(run))


@pytest.mark.slow  # half a minute, that torchrun takes to notice
def test_machines_come_and_go(torchrun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # as docs/scaling.md says
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    meeting = f"--rdzv_backend=c10d --rdzv_endpoint=localhost:{port} --rdzv_id=test"
    meeting += " --rdzv_conf=last_call_timeout=2"
    run = tmp_path / "run"
    flags = (*SMALL, *QUIET, "--total_steps=10000000", f"--run_dir={run}")
    options = {"options": f"--nnodes=1:2 --nproc_per_node=1 {meeting}", "max_restarts": 3}
    first = torchrun(*flags, **options)
    wait_for(lambda: (run / "metrics.csv").exists())  # alone
    second = torchrun(*flags, **options)
    wait_for(
        lambda: len(resumptions(run)) == 1 and step_of(run) > resumptions(run)[-1] + 2560
    )  # together
    assert len(ranks_of(first)) == len(ranks_of(second)) == 1
    os.killpg(second.pid, signal.SIGKILL)
    lost_at = step_of(run)
    wait_for(
        lambda: len(resumptions(run)) == 2 and step_of(run) > lost_at + 2560, 120
    )  # alone again
    os.kill(ranks_of(first)[0], signal.SIGTERM)
    assert first.wait(60) == 0
    assert load(run / "checkpoints" / "last.safetensors")["step"] == int(metrics(run)[-1]["step"])


@pytest.mark.slow
def test_each_rank_replaces_its_own_workers_and_says_so(torchrun, tmp_path: Path) -> None:
    kinds = "kill,raise,nan,exit"
    flags = [
        flag.replace("--num_workers=2", "--num_workers=1")
        for flag in fault(tmp_path, kinds, step=20)
    ]
    done = torchrun(*flags, *QUIET)
    assert done.wait(120) == 0, done.stderr.read()
    said = done.stderr.read()
    of_first = events(tmp_path / "run", "worker_lost")
    assert len(of_first) == int(metrics(tmp_path / "run")[-1]["faults/worker_lost"])
    assert said.count("warning: rank 1: worker 0 was lost") == 4 - len(of_first)
    assert said.count("was lost and is replaced") == 4


@pytest.mark.slow
def test_nothing_outlives_the_launcher(torchrun, tmp_path: Path) -> None:
    launcher = torchrun(*SMALL, *QUIET, "--total_steps=10000000", f"--run_dir={tmp_path / 'run'}")
    wait_for(lambda: (tmp_path / "run" / "metrics.csv").exists())
    ranks = ranks_of(launcher)
    workers = [
        int(child)
        for rank in ranks
        for child in Path(f"/proc/{rank}/task/{rank}/children").read_text().split()
    ]
    assert len(ranks) == 2
    assert len(workers) >= 2
    launcher.kill()
    launcher.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in [*ranks, *workers]), 5)


@pytest.mark.slow
def test_a_signal_to_one_rank_saves_and_ends_all(torchrun, tmp_path: Path) -> None:
    launcher = torchrun(
        *SMALL, *QUIET, "--total_steps=10000000", f"--run_dir={tmp_path / 'run'}", max_restarts=3
    )
    wait_for(
        lambda: (tmp_path / "run" / "metrics.csv").exists()
    )  # so that both have begun to take note of signals
    os.kill(ranks_of(launcher)[1], signal.SIGTERM)
    assert launcher.wait(60) == 0
    state = load(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert state["step"] == int(metrics(tmp_path / "run")[-1]["step"])
    said = launcher.stderr.read()
    assert said.count(f"stopped, saved in {tmp_path / 'run'}") == 1
    assert "error: " not in said


def test_ranks_that_differ_are_refused() -> None:
    parts: Any = SimpleNamespace(config=Config(gamma=0.99, num_workers=3))
    same = {**parts.config.__getstate__(), "num_workers": 4, "device": "cuda"}
    parts.peers = Two({**same, "gamma": 0.9})
    with pytest.raises(
        ConfigError, match=r"ranks differ: --gamma is 0.99, 0.9, give the same to all"
    ):
        check_settings(parts)
    parts.peers = Two(same)
    check_settings(parts)


def test_each_rank_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    choose_gpu()
    parts: Any = SimpleNamespace(config=Config(device="cuda"))
    parts.peers = Two(parts.config.__getstate__())
    check_settings(parts)
    monkeypatch.setenv("LOCAL_RANK", "2")
    choose_gpu()
    with pytest.raises(ConfigError, match="rank 2 of this machine has no GPU of its own: start 2"):
        check_settings(parts)
    assert chosen == [1]


def test_a_process_that_torchrun_has_not_started_learns_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", LAUNCH):
        monkeypatch.delenv(name, raising=False)
    assert join() is None
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    join()
    assert hardware.sharing == 2
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    join()
    assert hardware.sharing == 1


def test_a_launch_resumes_its_own_run_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "abc")
    given = {"name": "a/b", "seed": "1"}
    assert complete(given) == {**given, "run_dir": "runs/a-b-abc"}
    assert complete({"run_dir": "none"}) == complete({})
    assert complete({})["run_dir"] == f"runs/{Config.env_name}-abc"
    for folder, launch in (("ours", "abc"), ("another", "def"), ("alone", None)):
        Path(folder).mkdir()
        Path(folder, "config.json").write_text(json.dumps({"launch": launch}))
    assert complete({"run_dir": "ours"}) == {"run_dir": "ours", "resume": "auto"}
    assert complete({"run_dir": "another"}) == {"run_dir": "another"}
    assert complete({"run_dir": "alone"}) == {"run_dir": "alone"}
    assert complete({"resume": "another"}) == {"resume": "another"}
    with pytest.raises(ConfigError, match="--seeds=3 is for one process"):
        complete({"seeds": "3"})
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with pytest.raises(ConfigError, match="--rdzv_id=none: give the run a name"):
        complete({"run_dir": "ours"})


def test_environments_are_shared_evenly_or_refused() -> None:
    ranks = Two(None, rank=1)
    assert ranks.ids(6) == range(3, 6)
    with pytest.raises(
        ConfigError, match="--num_envs=7 cannot be shared evenly by 2 ranks: give a multiple of 2"
    ) as caught:
        ranks.ids(7)
    assert caught.value.is_reported  # by rank 0
    with pytest.raises(ConfigError) as caught:
        Two(None).ids(1)
    assert not caught.value.is_reported
    assert Peers().ids(5) == range(5)


@pytest.mark.slow
def test_two_ranks_solve_cartpole(torchrun, tmp_path: Path) -> None:
    assert (
        torchrun("--env_name=CartPole-v1", *QUIET, f"--run_dir={tmp_path / 'run'}").wait(120) == 0
    )
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["evaluation"]["mean"] >= 475


@pytest.mark.slow
def test_the_run_of_another_launch_is_not_resumed(torchrun, tmp_path: Path) -> None:
    flags = (*SMALL, *QUIET, "--num_iterations=2", f"--run_dir={tmp_path / 'run'}")
    assert run_main(*flags).returncode == 0
    before = {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "lock"
    }
    launcher = torchrun(*flags, max_restarts=1)
    assert launcher.wait(120) == 1
    said = launcher.stderr.read()
    assert said.count("is not empty, and no run is overwritten") == 2  # once in each attempt
    assert {path: path.read_bytes() for path in before} == before


def test_torchrun_does_not_start_interrupted_ranks_again() -> None:
    error = Interrupted(signal.SIGTERM, "after step 128")
    with suppress(Interrupted), Launched():
        raise error
    assert error.exit_code == 0
