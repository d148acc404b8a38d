"""Training by several ranks: forks of a process, and one start of torchrun."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ppo import Callback, Learner
from ppo.cli import main
from ppo.extras import torchrun
from tests.running import ROOT, SMALL, make_batch, make_learner, python, rows, tensors, train
from tests.worlds import Constant

HERE = "tests.test_torchrun"
COUNTING = "tests.worlds:Counting"
VARIABLES = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]


class Steep(Learner):
    def make_optimizer(self) -> Any:  # one that imports more of torch
        return torch.optim.SGD([self.parameter], self.learning_rate)


class Paying(Constant):
    pay = 0.0  # or what a callback sets

    def step(self, action: Any) -> Any:
        observation, _, *ended = super().step(action)
        return observation, self.pay, *ended


class Lead(Callback):  # of rank 0 alone
    def on_start(self, run: Any) -> None:
        run.learner.weights += 1
        run.normalize.update(np.ones((9, 1)))
        run.set_env(pay=2.0)

    def on_iteration(self, run: Any) -> None:
        run.change(learning_rate=0.1 * run.iteration)
        if run.iteration == 3:
            run.stop("enough")


class Follow(Callback):
    def on_batch(self, run: Any, batch: Any) -> None:
        weights, count = run.learner.weights.numpy(), run.normalize.statistics.count
        assert np.array_equal(weights, run.rollout.weights)  # those that have acted
        seen = f"{run.iteration} {count} {run.config.learning_rate} {len(batch['actions'])} "
        os.write(1, f"{seen} {weights.sum()}\n".encode())  # in one piece


class Fail(Callback):
    """Raise in rank 1, or send it a signal, in attempts and iterations that a variable names."""

    def on_batch(self, run: Any, batch: Any) -> None:
        faults = dict(word.split("=") for word in os.environ["FAULTS"].split())
        fault = faults.get(f"{os.environ['TORCHELASTIC_RESTART_COUNT']}:{run.iteration}")
        if fault and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.Signals[fault])  # raises KeyError for "error"


def command(env: str, path: Path, iterations: int, **flags: Any) -> list[str]:
    flags = {**SMALL, "env_name": env, "run_dir": path, "resume": "auto", **flags}
    steps = iterations * flags["num_envs"] * flags["num_steps"]
    return [f"--{name}={value}" for name, value in {**flags, "total_steps": steps}.items()]


def two_ranks(line: list[str], cwd: Path, faults: str = "") -> tuple[list[int], str, str]:
    """Train in two ranks; return their exit codes, what they print, and their errors."""
    done = python("-m", HERE, *line, cwd=cwd, FAULTS=faults)
    out, _, codes = done.stdout.partition("CODES")
    return [int(code) for code in codes.split()], out, done.stderr


def fork_ranks(line: list[str]) -> None:
    """Do what torchrun does, but import torch only once."""
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)}
    os.environ |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    ranks = []
    for number in ("0", "1"):
        ranks.append(os.fork())
        if not ranks[-1]:
            os.environ |= {"RANK": number, "LOCAL_RANK": number}
            code = main(line)
            threads = [x.read_text().strip() for x in Path("/proc/self/task").glob("*/comm")]
            print(*[name for name in threads if "gloo" in name], end="", flush=True)
            os._exit(code)
    print("CODES", *[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks])


def test_two_ranks_step_the_environments_and_learn_from_the_rows_of_one_process(tmp_path):
    flags = {"learner": f"{HERE}:Steep", "learning_rate": 1, "max_grad_norm": 0}
    flags |= {"normalize_advantages": "none", "num_epochs": 1, "num_minibatches": 1}
    flags |= {"normalize_observations": True, "normalize_rewards": True}
    train(COUNTING, tmp_path / "still", 1, **{**flags, "learning_rate": 1e-30})
    train(COUNTING, tmp_path / "one", 2, **flags)
    codes, out, err = two_ranks(command(COUNTING, tmp_path / "two", 2, **flags), tmp_path)
    assert (codes, out, err) == ([0, 0], "", "")  # a thread may abort the end of a process
    before, one, two = (tensors(tmp_path / name) for name in ("still", "one", "two"))
    for name, value in one.items():
        if name.startswith("model."):
            assert abs(value - before[name]).max() > 1e-3
            np.testing.assert_allclose(two[name], value, rtol=0, atol=1e-6)
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
            np.testing.assert_allclose(two[name], value, rtol=1e-12, atol=1e-12)
        else:
            assert np.array_equal(two[name], value), name
    for mine, its in zip(rows(tmp_path / "two"), rows(tmp_path / "one"), strict=True):
        for name in ("step", "episodes", "episode_return_mean", "loss", "entropy", "value_loss"):
            assert float(mine[name] or 0) == pytest.approx(float(its[name] or 0), abs=1e-5)


def test_what_callbacks_of_rank_0_change_is_so_in_all_ranks(tmp_path):
    flags = {"callback": f"{HERE}:Lead", "normalize_observations": True}
    line = command(f"{HERE}:Paying", tmp_path / "run", 9, **flags)
    seen = sorted(two_ranks([*line, f"--callback={HERE}:Follow"], tmp_path)[1].splitlines())
    assert seen[::2] == seen[1::2]  # weights, too
    found = [line.partition("  ")[0] for line in seen[::2]]
    assert found == ["1 9.0 0.00025 32", "2 73.0 0.1 32", "3 137.0 0.2 32"]
    assert [float(row["episode_return_mean"]) for row in rows(tmp_path / "run")] == [20] * 3


def test_ranks_take_as_many_minibatches_as_the_one_with_the_fewest(monkeypatch):
    monkeypatch.setattr(torchrun, "gather", lambda own: [own, own - 1])  # agents are absent there
    learner = make_learner(type("", (torchrun.RankLearner, Learner), {}))
    found = [*learner._minibatches(make_batch(learner), 1)]
    assert len(found) == 2 * 2 - 1


@pytest.mark.parametrize(
    ("num_envs", "fault", "code", "said", "saved"),
    [
        pytest.param(4, "0:3=error", 1, "error: KeyError", 2, id="error"),
        pytest.param(4, "0:3=SIGTERM", 0, "SIGTERM: saved after step 192", 3, id="signal"),
        pytest.param(3, "", 2, "error: --num_envs=3", 0, id="refusal"),
    ],
)
def test_one_sentence_says_why_all_end(num_envs, fault, code, said, saved, tmp_path):
    line = command(COUNTING, tmp_path / "run", 9, num_envs=num_envs, callback=f"{HERE}:Fail")
    codes, _, err = two_ranks(line, tmp_path, fault)
    assert codes == [code, code]
    *traceback, last = err.splitlines()
    assert last.startswith(said)
    assert bool(traceback) == err.count("Traceback") == (code == 1)
    assert (tmp_path / "run").exists() == bool(saved)
    if saved:
        assert tensors(tmp_path / "run")["iteration"] == saved
        train(COUNTING, tmp_path / "run", 5, callback="none")  # in a single process
        assert [row["iteration"] for row in rows(tmp_path / "run")] == [*"12345"]
        assert "not exact" not in (tmp_path / "run" / "notes.txt").read_text()


def test_torchrun_starts_ranks_again_after_a_kill_but_not_after_a_signal(tmp_path):
    start = ["torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max-restarts=3"]
    line = command(COUNTING, tmp_path / "run", 99, callback=f"{HERE}:Fail", patience=99)
    faults = "0:3=SIGKILL 1:6=SIGTERM"
    done = python("-m", *start, str(ROOT / "main.py"), *line, cwd=tmp_path, FAULTS=faults)
    assert done.returncode == 0, done.stderr
    assert [done.stderr.count(x) for x in ("error: ", "is dropped")] == [1, 0]
    assert [row["iteration"] for row in rows(tmp_path / "run")] == [*"123456"]


@pytest.mark.parametrize("given", [["RANK"], ["WORLD_SIZE"], VARIABLES[:4]])
def test_half_of_torchruns_variables_is_refused(given, tmp_path, monkeypatch, capsys):
    for name in given:
        monkeypatch.setenv(name, "0")
    assert main(command(COUNTING, tmp_path / "run", 1)) == 2
    missing = [name for name in VARIABLES if name not in given]
    assert (
        f"variables {', '.join(missing)} are missing: start with torchrun"
        in capsys.readouterr().err
    )


if __name__ == "__main__":
    fork_ranks(sys.argv[1:])
