"""What processes import, and where they are started."""

from pathlib import Path
from typing import Any

import pytest

from ppo.cli import main
from tests.running import ROOT, python, running
from tests.worlds import Imports

FLAGS = ["--num_envs=2", "--num_steps=8", "--total_steps=16", "--num_minibatches=1"]
FLAGS += ["--eval_episodes=1", "--num_workers=0", "--run_dir=run"]
LOADED = "import sys; from ppo.cli import main; main({!r}); print('LOADED', *sys.modules)"


def loaded(*line: str, cwd: Path) -> set[str]:
    """Return the modules that a command loads."""
    done = python("-c", LOADED.format([*line]), cwd=cwd)
    assert done.returncode == 0, done.stderr
    return {*done.stdout.partition("LOADED")[2].split()}


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_a_word_about_itself_needs_no_torch(flag, tmp_path):
    assert not loaded(flag, cwd=tmp_path) & {"torch", "gymnasium", "cv2", "ale_py"}


def test_training_an_mlp_loads_no_compiler_and_nothing_for_images(tmp_path):
    modules = loaded("CartPole-v1", *FLAGS, cwd=tmp_path)
    assert "torch" in modules
    assert not modules & {"torch._dynamo", "cv2", "ale_py", "tensorboard", "wandb", "matplotlib"}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_worker_of_an_mlp_loads_no_torch(num_workers, tmp_path):
    with running(Imports, tmp_path, num_workers=num_workers) as run:
        episodes: Any = run.collect().report.episodes
    assert episodes
    for episode in episodes:
        assert episode.metrics["torch"] == (num_workers == 0)
        assert num_workers == 0 or not any(episode.metrics.values())


@pytest.mark.parametrize("start", [[str(ROOT / "main.py")], ["-m", "ppo"]])
def test_a_working_folder_with_modules_of_the_same_names_does_not_disturb(start, tmp_path):
    """Those of Python itself are not found before it by main.py, and never by workers."""
    for name in ("envs", "models"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError\n")
    path = {} if start == ["-m", "ppo"] else {"PYTHONPATH": ""}
    for name in ("random", "select", "signal", "torch") if path else ():
        (tmp_path / f"{name}.py").write_text("raise RuntimeError\n")
    flags = [x.replace("workers=0", "workers=1") for x in FLAGS]
    done = python(*start, "--env_name=CartPole-v1", *flags, cwd=tmp_path, **path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("line", [[], ["--help=all"], ["--help"], ["evaluate", "--help"]])
def test_help_has_80_columns(line, capsys):
    assert main(line) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80


def test_lines_have_80_columns_and_paths_are_as_typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--num_workers=0", "--total_steps=8192", "--seed=3", "--max_episode_steps=20"]
    assert main(["LunarLander-v3", *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "run folder: runs/LunarLander-v3-1" in lines
    assert max(map(len, lines)) <= 80
    assert {"num_minibatches=32", "entropy_coef=0.0"} <= {x for line in lines for x in line.split()}
    assert main(["LunarLander-v3", *flags, "--run_dir=runs/LunarLander-v3-1"]) == 2
    error = capsys.readouterr().err
    assert "--resume=runs/LunarLander-v3-1" in error
    assert str(tmp_path) not in error
