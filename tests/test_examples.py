"""What examples/ and the README show, run as a user would."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ppo.config import Config, load_preset
from ppo.flags import parse_flags
from tests.running import ROOT, metrics, run_main

SHORT = ("--num_iterations=2", "--num_steps=16", "--num_envs=4", "--eval_episodes=1")


@pytest.mark.parametrize(
    "flags",
    [
        ("--env_name=examples.own_environment:HiddenVelocity", "--model=lstm"),
        ("--env_name=CartPole-v1", "--model=examples.own_model:NormalizedActorCritic"),
    ],
    ids=["environment", "model"],
)
def test_examples_for_the_command_line(flags: tuple[str, ...], tmp_path: Path) -> None:
    done = run_main(*flags, *SHORT, "--preset=none", f"--run_dir={tmp_path}/run")
    assert done.returncode == 0, done.stderr
    assert [row["iteration"] for row in metrics(tmp_path / "run")] == ["1", "2"]


@pytest.mark.parametrize("name", ["own_loss", "use_api"])
def test_examples_for_python_learn(name: str, tmp_path: Path) -> None:
    """They are run in another folder, where they leave their run."""
    command = [sys.executable, "-m", f"examples.{name}"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    returns = [float(row["episode_return_mean"]) for row in metrics(folder)]
    assert returns[-1] > 3 * returns[0]
    rows = metrics(folder)
    if name == "own_loss":
        assert float(rows[-1]["penalty"]) > 0
    else:
        rates = [float(row["learning_rate"]) for row in rows]
        assert rates[0] == rates[len(rates) // 2] == 1e-3
        assert rates[-1] == pytest.approx(1e-3 * 2 / len(rows))
        assert "one more:" in done.stdout


def test_every_command_of_the_documentation_is_one() -> None:
    """Flags exist, values fit, presets are there: for the README, docs/ and results/."""
    found = []
    for path in [
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("results/*/README.md"),
        *ROOT.glob("results/*.md"),
    ]:
        found += re.findall(r"python main\.py ((?:--[^`|\n]+)+)", path.read_text())
    commands = [shlex.split(text.replace("SEED", "1").replace("=ID", "=CartPole-v1")) for text in found]
    assert len(commands) > 10
    for flags in commands:
        if flags != ["--help"]:
            given = parse_flags(flags, Config)
            load_preset(given.get("preset", "auto"), given.get("env_name", ""), None)
            Config(**given)
