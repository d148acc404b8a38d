"""Several ranks against one process: the same run, from shares of its environments."""

import copy
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ppo.algorithm.minibatches import draw_minibatches
from ppo.errors import ConfigError
from ppo.run.checkpoint import load
from ppo.system.distributed import SINGLE_PROCESS, NullObject, ProcessGroup
from tests.rank import numbers
from tests.running import ROOT, metrics, run_main
from tests.test_faults import events, fault

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


class Fake(ProcessGroup):
    """Stands in for ranks of which another one gives a part of its own."""

    def __init__(self, rank: int = 0, size: int = 2, other: Any = None) -> None:
        super().__init__()
        self.rank = rank
        self.size = size
        self.other = other
        self.gathered: list[Any] = []

    def exchange(self, collective: Any, values: list[Any], *parts: Any) -> None:
        if collective is torch.distributed.all_gather_object:
            self.gathered += copy.deepcopy(parts)
            values[:] = [*parts, self.other]


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


@pytest.mark.parametrize("length", [1, 6])
@pytest.mark.parametrize("batch_size", [None, 7])
def test_ranks_share_each_minibatch(length: int, batch_size: int | None) -> None:
    T, N = 6, 4
    config = SimpleNamespace(
        num_steps=T, num_envs=N, num_epochs=2, num_minibatches=3, batch_size=batch_size
    )
    split = partial(draw_minibatches, config, seed=5, sequence_length=length)
    whole = split(env_ids=range(N))
    shares = [split(env_ids=columns) for columns in (range(1), range(1, 4))]
    for minibatch, *parts in zip(whole, *shares, strict=True):
        rows = []
        for part, columns in zip(parts, (range(1), range(1, 4)), strict=True):
            rows += [
                int(row) // len(columns) * N + columns[int(row) % len(columns)]
                for row in part.rows
                if part.weight
            ]
        assert sorted(rows) == sorted(minibatch.rows.tolist())
        assert sum(part.weight for part in parts) == pytest.approx(1)
        assert minibatch.weight == 1


def test_environments_that_cannot_be_shared_evenly_are_refused() -> None:
    ranks = Fake(rank=1, size=3)
    assert ranks.env_ids(6) == range(2, 4)
    with pytest.raises(
        ConfigError, match="--num_envs=8 cannot be shared evenly by 3 ranks: give a multiple of 3"
    ):
        ranks.env_ids(8)
    with pytest.raises(ConfigError):
        ranks.env_ids(2)
    assert SINGLE_PROCESS.env_ids(5) == range(5)


@pytest.mark.slow
def test_what_ranks_exchange(torchrun, tmp_path: Path) -> None:
    done = torchrun(str(tmp_path), program="--module tests.rank")
    assert done.wait(120) == 0, done.stderr.read()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first.pop("events") == [  # each once, in the first rank
        ["worker_lost", "gone", {"worker": 3}],
        ["worker_lost", "rank 1: gone", {"rank": 1, "worker": 3}],
    ]
    assert second.pop("events") == []
    assert (first.pop("failed"), second.pop("failed")) == (
        ["no such thing", False],
        ["no such thing", True],
    )
    assert first == second  # weights after five iterations too, to the last bit
    samples = np.concatenate([numbers(0), numbers(1)])
    count, mean, variance = first["pooled"]
    assert count == len(samples)
    np.testing.assert_allclose(mean, samples.mean(0), rtol=1e-12)
    np.testing.assert_allclose(variance, samples.var(0), rtol=1e-12)
    assert first["variance"] == pytest.approx(samples[:, 0].var(ddof=1), rel=1e-5)
    fives = [numbers(rank)[:5, 0] for rank in (0, 1)]
    for (deviation, average), values in zip(
        first["moments"], (np.concatenate(fives), fives[1]), strict=True
    ):
        assert deviation == pytest.approx(values.std(ddof=1), rel=1e-4)
        assert average == pytest.approx(values.mean())
    assert first["gradients"] == [1.75] * 4
    assert first["large"] == [1.5]
    assert first["nothing"] == [1.0] * 4
    assert first["metrics"] == {"loss": 3.0, "norm": 0.75}
    assert (first["gathered"], first["told"], first["same"]) == ([0, 1], "from 0", False)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "lstm"])
def test_the_gradient_of_a_minibatch_is_one_process_s(model: str, torchrun, tmp_path: Path) -> None:
    flags = (
        *SMALL,
        *QUIET,
        f"--model={model}",
        "--hidden_size=16",
        "--num_iterations=1",
        "--num_minibatches=1",
    )
    one_step = (
        "--optimizer=torch.optim:SGD",
        "--learning_rate=1",
        "--num_epochs=1",
        "--max_grad_norm=0",
    )
    assert (
        run_main(*flags, *one_step, "--num_workers=1", f"--run_dir={tmp_path / 'one'}").returncode
        == 0
    )
    assert torchrun(*flags, *one_step, f"--run_dir={tmp_path / 'two'}").wait(120) == 0
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


@pytest.mark.parametrize(
    "flags",
    [
        (),
        pytest.param(("--model=lstm", "--hidden_size=16"), marks=pytest.mark.slow),
        pytest.param(
            (
                "--normalize_advantages=rollout",
                "--batch_size=48",
                "--target_kl=0.001",
                "--learning_rate=0.003",
            ),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["mlp", "lstm", "settings"],
)
def test_two_ranks_learn_what_one_process_does(
    flags: tuple[str, ...], torchrun, tmp_path: Path
) -> None:
    flags = (*SMALL, *QUIET, *flags, "--num_iterations=5", "--num_minibatches=2")
    one = run_main(*flags, "--num_workers=1", f"--run_dir={tmp_path / 'one'}")
    assert one.returncode == 0, one.stderr
    two = torchrun(*flags, f"--run_dir={tmp_path / 'two'}")
    assert two.wait(120) == 0, two.stderr.read()
    expected, found = (
        load(tmp_path / run / "checkpoints" / "last.safetensors") for run in ("one", "two")
    )
    assert found["step"] == 5 * 4 * 32
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        if not isinstance(tensor, torch.Tensor):
            assert isinstance(found[name], type(tensor)), name
        elif name.startswith("model."):
            torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-4)
        elif not name.startswith(("optimizer.", "generator.")):
            torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(metrics(tmp_path / "two"), metrics(tmp_path / "one"), strict=True):
        assert ours.keys() == theirs.keys()
        for name in (
            "loss",
            "entropy",
            "approx_kl",
            "explained_variance",
            "gradient_steps",
            "episode_return_mean",
        ):
            assert float(ours[name] or 0) == pytest.approx(float(theirs[name] or 0), abs=1e-4), name


@pytest.mark.slow
def test_two_ranks_solve_cartpole(torchrun, tmp_path: Path) -> None:
    assert (
        torchrun("--env_name=CartPole-v1", *QUIET, f"--run_dir={tmp_path / 'run'}").wait(120) == 0
    )
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["evaluation"]["mean"] >= 475


@pytest.mark.slow
def test_a_run_of_two_ranks_is_resumed_by_one_process_exactly(torchrun, tmp_path: Path) -> None:
    whole = run_main(
        *SMALL, *QUIET, "--total_steps=1280", "--num_workers=1", f"--run_dir={tmp_path / 'one'}"
    )
    assert whole.returncode == 0
    flags = (*SMALL, *QUIET, "--total_steps=1280", f"--run_dir={tmp_path / 'two'}")
    assert torchrun(*flags, "--num_iterations=6").wait(120) == 0
    assert run_main(f"--resume={tmp_path / 'two'}", "--num_iterations=none").returncode == 0
    ours, theirs = (metrics(tmp_path / run) for run in ("two", "one"))
    assert [row["episode_return_mean"] for row in ours] == [
        row["episode_return_mean"] for row in theirs
    ]


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
def test_events_of_other_ranks_are_recorded_by_rank_0(torchrun, tmp_path: Path) -> None:
    kinds = "kill,raise,nan,exit"
    flags = [
        flag.replace("--num_workers=2", "--num_workers=1")
        for flag in fault(tmp_path, kinds, step=20)
    ]
    done = torchrun(*flags, *QUIET)
    assert done.wait(120) == 0, done.stderr.read()
    lost = events(tmp_path / "run", "worker_lost")
    for event in lost:
        rank = event.get("rank", 0)
        assert event["environments"] == [2 * rank, 2 * rank + 1]
        assert int(re.search(r"environment (\d)", event["cause"])[1]) in event["environments"]
        assert event["message"].startswith(
            "rank 1: worker 0 was lost" if rank else "worker 0 was lost"
        )
    assert len(lost) == int(metrics(tmp_path / "run")[-1]["faults/worker_lost"]) == 4
    assert done.stderr.read().count("was lost and is replaced") == 4


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
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_rank_saves_and_ends_all(rank: int, torchrun, tmp_path: Path) -> None:
    launcher = torchrun(
        *SMALL, *QUIET, "--total_steps=10000000", f"--run_dir={tmp_path / 'run'}", max_restarts=3
    )
    wait_for(
        lambda: (tmp_path / "run" / "metrics.csv").exists()
    )  # so that both have begun to take note of signals
    os.kill(ranks_of(launcher)[rank], signal.SIGTERM)
    assert launcher.wait(60) == 0
    state = load(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert state["step"] == int(metrics(tmp_path / "run")[-1]["step"])
    said = launcher.stderr.read()
    assert said.count("error: ") == said.count(f"stopped, saved in {tmp_path / 'run'}") == 1


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


def test_ranks_that_differ_are_refused() -> None:
    mine = {"gamma": 0.99, "device": "cuda:1", "num_workers": 3, "num_envs": 8}
    other = {**mine, "device": "cpu", "gamma": 0.9, "num_workers": 4}
    ranks = Fake(other=(other, ()))
    with pytest.raises(
        ConfigError,
        match=r"ranks differ: --gamma is 0.99, 0.9, give the same to all",
    ):
        ranks.check_same_settings(mine, ("num_workers",))
    ranks = Fake(other=({**mine, "device": "cuda", "num_workers": 4}, ()))
    ranks.check_same_settings(mine, ("num_workers",))
    with pytest.raises(ConfigError, match="num_workers is 3, 4"):
        ranks.check_same_settings(mine, ())
    with pytest.raises(ConfigError, match="--num_envs=7 cannot be shared evenly by 2 ranks"):
        ranks.check_same_settings({**mine, "num_envs": 7}, ())


def test_events_of_other_ranks_are_delivered_once_with_the_next_gather() -> None:
    events: list[Any] = []
    first = Fake(other=("theirs", [("lost", "rank 1: gone", {"rank": 1})]))
    on_event = first.forward_events(lambda *event, **details: events.append((event, details)))
    on_event("lost", "mine")
    assert first.gather("mine") == ["mine", "theirs"]
    assert events == [(("lost", "mine"), {}), (("lost", "rank 1: gone"), {"rank": 1})]
    second = Fake(rank=1, other=("theirs", ()))
    second.forward_events(pytest.fail)("lost", "gone", worker=3)
    second.gather("mine")
    second.gather("mine")
    lost = ("lost", "rank 1: gone", {"rank": 1, "worker": 3})
    assert second.gathered == [
        ("mine", (lost,)),
        ("mine", ()),
    ]


def test_only_rank_0_has_what_logs_and_saves() -> None:
    assert Fake(rank=0).on_rank0(int, "7") == 7
    nothing = Fake(rank=1).on_rank0(int, "7")
    assert isinstance(nothing, NullObject)
    with nothing as entered:
        assert entered.save("whatever", there="is") is None


@pytest.mark.parametrize(
    ("error", "is_left"), [(None, True), (ValueError("no"), False), (SystemExit(), False)]
)
def test_the_group_is_left_unless_a_rank_may_be_lost(
    error: Any, is_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: left.append(True))
    with suppress(ValueError, SystemExit), Fake():
        if error:
            raise error
    assert left == [True] * is_left
