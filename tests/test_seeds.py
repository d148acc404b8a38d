"""Several seeds by one command."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppo import cli
from ppo.extras import seeds
from ppo.extras.seeds import shares_of_cores
from tests.running import ROOT, assert_same_state, rows, train

FLAGS = [
    *("seeds", "CartPole-v1", "--preset=none", "--num_envs=2", "--num_steps=16"),
    *("--num_minibatches=2", "--hidden_size=8", "--target_kl=none", "--normalize_rewards=False"),
]


def test_each_seed_is_a_run_as_alone_and_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    more = ["--count=2", "--seed=7", "--name=mine", "--eval_episodes=3", "--stop_when=step>63"]
    assert cli.main([*FLAGS, *more, '--env_kwargs={"sutton_barto_reward": true}']) == 0
    lines = capsys.readouterr().out.splitlines()
    means = []
    for number in (7, 8):
        folder = Path("runs/mine", f"seed-{number}")
        config = json.loads((folder / "config.json").read_text())
        assert (config["seed"], config["target_kl"], config["logger"]) == (number, None, [])
        assert config["env_kwargs"] == {"sutton_barto_reward": True}
        assert len(rows(folder)) == 2
        means.append(json.loads((folder / "summary.json").read_text())["evaluation"]["mean"])
    assert re.match(rf"{folder} +\S+ +{means[1]:.4g} +{means[1]:.4g} +64 ", lines[-2])
    assert lines[-1] == "evaluations: mean {0:.2f}, median {0:.2f}".format(sum(means) / 2)
    more[-1] = "--stop_when=step>127"
    assert cli.main([*FLAGS, *more, '--env_kwargs={"sutton_barto_reward": true}']) == 0
    flags = {"num_envs": 2, "num_epochs": 4, "normalize_observations": True, "seed": 8}
    kwargs = {"sutton_barto_reward": True}
    train("CartPole-v1", Path("alone"), 9, **flags, env_kwargs=kwargs, stop_when="step>127")
    assert len(rows(folder)) == 4
    assert_same_state(folder, Path("alone"))


def test_the_code_of_a_failed_run_is_the_commands(tmp_path, capfd):
    place = tmp_path / "all"
    assert cli.main([*FLAGS, "--count=2", f"--run_dir={place}", "--model=mpl"]) == 2
    assert "failed: 1, 2" in capfd.readouterr().err.splitlines()[-1]


def test_torchrun_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "0")
    assert cli.main([*FLAGS, "--name=x"]) == 2
    assert "torchrun" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--name"),
        (["--name=x", "rubbish"], "rubbish"),
        (["--name=x", "--resume=y"], "--resume"),
        (["--name=x", "--count=0"], "--count"),
        (["--name=x", "--gama=1"], "--gama"),
    ],
)
def test_a_wrong_command_is_refused(words, said, capsys):
    assert cli.main([*FLAGS, *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "total", "num_workers", "shares"),
    [
        (5, 2, None, [[0], [1]]),
        (2, 8, None, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (3, 8, "auto", [[0, 1], [2, 3], [4, 5]]),
        (3, 8, 4, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (3, 8, 0, [[0], [1], [2]]),
        (3, 2, 4, [[0, 1]]),
    ],
)
def test_runs_share_the_cores(number, total, num_workers, shares, monkeypatch):
    monkeypatch.setattr(seeds, "available_cores", lambda: total)
    monkeypatch.setattr(seeds, "core_numbers", lambda: [*range(total)])
    assert shares_of_cores(number, num_workers) == shares


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_runs_are_saved_when_the_command_is_stopped_or_killed(number, tmp_path):
    command = [sys.executable, "-m", "ppo", *FLAGS, "--count=2", "--total_steps=10_000_000"]
    command += ["--run_dir=all", "--checkpoint_every=100_000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    runs = [tmp_path / "all" / f"seed-{seed}" for seed in (1, 2)]
    while not all(len(rows(run)) > 2 for run in runs[: len(shares_of_cores(2, None))]):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    codes = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}
    assert process.wait() == codes[number]
    last = runs[0] / "checkpoints" / "last.safetensors"
    while not last.exists():  # a killed command does not wait for its runs
        time.sleep(0.05)
