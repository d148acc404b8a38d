"""The project of a user, examples/own_project: its script, its file, its notebook."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT, metrics

PROJECT = ROOT / "examples" / "own_project"


def run(folder: Path, *command: str) -> subprocess.CompletedProcess:
    """Run a command in the project, by the trainer of this checkout."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project, which leaves its runs there."""
    ignored = shutil.ignore_patterns("__pycache__", "runs")
    return Path(shutil.copytree(PROJECT, tmp_path / "project", ignore=ignored))


@pytest.mark.slow
def test_its_file_is_trained_on_by_the_command_line(project: Path) -> None:
    flags = "--num_envs=2 --num_steps=64 --total_steps=512 --eval_episodes=2 --report=False"
    done = run(project, "-m", "ppo", "train", "envs/my_env.py:Reach", *flags.split(), "--name=r")
    assert done.returncode == 0, done.stderr
    last = metrics(project / "runs" / "r")[-1]
    assert {"env/is_success", "env/success_rate", "env/effort"} <= last.keys()
    layers = run(
        project,
        *("-m", "ppo", "train", "envs/my_env.py:Reach", *flags.split(), "--name=n"),
        "--model=models/critic.py:WideCritic",
    )
    assert layers.returncode == 0, layers.stderr
    camera = run(
        project,
        *("-m", "ppo", "train", "envs/my_env.py:CameraReach", *flags.split(), "--name=c"),
        "--model=models/student.py:CameraStudent",
        "--screen_size=36",
        "--teacher=r",
        "--teacher_parts=joints",
    )
    assert camera.returncode == 0, camera.stderr
    assert float(metrics(project / "runs" / "c")[-1]["teacher_kl"]) > 0


@pytest.mark.slow
def test_its_notebook_runs(project: Path) -> None:
    command = "-m nbconvert --to notebook --execute --inplace notebook.ipynb"
    done = run(project, *command.split())
    assert done.returncode == 0, done.stderr
    cells = json.loads((project / "notebook.ipynb").read_text())["cells"]
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")


@pytest.mark.slow
def test_its_script_learns_a_curriculum_and_is_fine_tuned(project: Path) -> None:
    done = run(project, "train.py", "runs")
    assert done.returncode == 0, done.stderr
    assert "stopped: success rate 0.9" in done.stdout
    rows = metrics(project / "runs" / "learned")
    assert {row["level"] for row in rows} == {"1", "2"}
    assert (project / "runs" / "learned" / "checkpoints" / "best.safetensors").exists()
    assert "begins with policy,value,normalizer" in done.stdout
    steps = re.search(r"(\d+) steps, then (\d+) more", done.stdout)
    assert steps
    assert int(steps[2]) < 200_000
    assert float(done.stdout.split()[-1]) >= 0.9
