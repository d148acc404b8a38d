"""Extensions: a package outside of the trainer adds to it by an entry point."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ppo.extensions import EXTRAS, extensions
from ppo.run.checkpoint import load
from tests.running import ROOT, metrics

FLAGS = (
    "CartPole-v1 --preset=none --num_envs=2 --num_steps=16 --total_steps=64 --num_workers=1"
    " --num_minibatches=1 --eval_episodes=0 --report=False"
)
Run = Callable[..., subprocess.CompletedProcess[str]]


def installed(folder: Path, value: str = "plugin:EXTENSION") -> None:
    """Install tests/plugin in a folder, with an entry point."""
    shutil.copytree(ROOT / "tests" / "plugin", folder / "plugin")
    about = folder / "plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[ppo.extras]\nplugin = {value}\n")


@pytest.fixture
def ppo(tmp_path: Path) -> Run:
    """Run a command line with that folder in Python's path."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "main.py"), *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
        )

    return run


def test_extras_are_what_is_in_their_folder_and_what_comes_first_is_first() -> None:
    found = extensions()
    assert {*found} >= {path.parent.name for path in EXTRAS.glob("*/__init__.py")}
    names = [*found]
    assert names.index("transfer") < names.index("demonstrations")


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code with what is installed in a folder."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder / 'site'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )


def test_an_extension_adds_whatever_an_extra_does(ppo: Run, tmp_path: Path) -> None:
    installed(tmp_path / "site")
    mine = ("--note=hello", "--pull=0.5", "--logger=console,lines", "--run_dir=run")
    done = ppo(*FLAGS.split(), *mine)
    assert (done.returncode, done.stderr) == (0, "")
    assert "noted hello" in done.stdout
    rows = metrics(tmp_path / "run")
    assert [row["note/length"] for row in rows] == ["5", "5"]
    assert [row["note/steps"] for row in rows] == ["16", "32"]
    assert {float(row["episode_length_mean"]) for row in rows} == {1}
    (found, *_) = [{name: float(row[name]) for name in row if row[name]} for row in rows]
    assert found["pull"] > 0
    loss = found["policy_loss"] + 0.5 / 2**2 * found["value_loss"] - 0.01 * found["entropy"]
    assert found["loss"] == pytest.approx(loss + 0.5 * found["pull"], rel=1e-4)
    assert (tmp_path / "run" / "lines.txt").read_text() == "1 True\n2 True\n"
    last = tmp_path / "run" / "checkpoints" / "last.safetensors"
    assert load(last)["pull.num_updates"] == 2
    done = ppo("--resume=run", "--total_steps=96")
    assert (done.returncode, done.stderr) == (0, "")
    assert "noted" not in done.stdout  # which is done once
    assert load(last)["pull.num_updates"] == 3
    assert ppo("count", "run").stdout == "3 rows\n"
    done = ppo("evaluate", "run", "--episodes=2", "--steps=steps.txt", "--note=again")
    assert (done.returncode, done.stderr) == (0, "")
    assert "counted: steps.txt" in done.stdout
    played = json.loads((tmp_path / "run" / "evaluation.json").read_text())[-1]
    assert min(played["lengths"]) > 1
    assert int((tmp_path / "steps.txt").read_text()) == sum(played["lengths"]) + 2
    done = python("import ppo; print(ppo.load_policy('run').predict('0 0.5 0 -1'))", tmp_path)
    assert (done.stdout in ("0\n", "1\n"), done.stderr) == (True, "")
    assert ppo(*FLAGS.split(), "--note=launch").stdout == "launched\n"
    assert "it is gone since version 2: give ppo count RUN" in ppo("tally", "run").stderr
    shown = ppo("--help=all").stdout
    assert "Notes:\n  --note VALUE" in shown
    assert "Count the rows of a run." in shown
    code = "from ppo import Note, Config; print(Note.__module__, Config(note='x').note)"
    done = python(code, tmp_path)
    assert (done.stdout, done.stderr) == ("plugin.run x\n", "")


@pytest.mark.slow
def test_an_extension_may_know_how_a_process_was_started(
    ppo: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path / "site")
    monkeypatch.setenv("NOTE", "from outside")
    done = ppo(*FLAGS.split(), "--run_dir=run")
    assert (done.returncode, done.stderr) == (0, "")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["note"], config["counted"], config["seed"]) == ("from outside", True, 7)
    assert config["auto"]["noted"] == "CartPole-v1"
    assert "defaults of a plugin: seed=7" in done.stdout
    assert "called: the first look" in done.stdout
    first, second = (int(row["gathered"]) for row in metrics(tmp_path / "run"))
    assert second > first > 0


@pytest.mark.slow
def test_an_extension_inspects_what_environments_return(ppo: Run, tmp_path: Path) -> None:
    installed(tmp_path / "site")
    wrapper = "--wrapper=gymnasium.wrappers:TimeAwareObservation"
    done = ppo(*FLAGS.split(), "--note=tenths", wrapper, "--run_dir=run")
    assert done.returncode == 0
    about = "warning: environment CartPole-v1:"
    assert done.stderr.splitlines() == [
        f"{about} it has steps",
        f"{about} TimeAwareObservation tells the time: leave it out",
        *(
            f"warning: environment {i} has made ten steps, and more are only counted"
            for i in range(2)
        ),
    ]
    assert [int(row["faults/tenth_step"]) for row in metrics(tmp_path / "run")] == [2, 6]


@pytest.mark.slow
def test_an_extension_adds_a_network_and_heads(ppo: Run, tmp_path: Path) -> None:
    installed(tmp_path / "site")
    flags = [flag for flag in FLAGS.split() if flag != "CartPole-v1"]
    own = ("--model=tiny", "--note=narrow", "--learning_rate=1e-9")
    done = ppo("Pendulum-v1", *flags, *own, "--run_dir=run")
    assert (done.returncode, done.stderr) == (0, "")
    saved = load(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert saved["model.policy_head.log_std"].tolist() == pytest.approx([-1.5])
    assert saved["model.policy_head.mean.weight"].shape == (1, 8)
    assert saved["model.policy_head.factor"].tolist() == pytest.approx([1])
    assert saved["model.value_trunk.norm.weight"].shape == (8,)
    assert "model.policy_trunk.norm.weight" not in saved
    code = "import ppo; print(ppo.load_policy('run').values([[9, 9, 9], [0, 0, 0]]).min() > 0)"
    done = python(code, tmp_path)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("env_name", ["plugin/Walk", "plugin.bare:Walk"])
def test_an_extension_adds_a_form_of_environments(env_name: str, ppo: Run, tmp_path: Path) -> None:
    installed(tmp_path / "site")
    flags = [flag for flag in FLAGS.split() if flag not in ("CartPole-v1", "--total_steps=64")]
    name = f"--env_name={env_name}"
    more = ("--total_steps=2048", "--learning_rate=0.01", "--eval_episodes=2", "--num_workers=2")
    done = ppo(*flags, name, *more, "--run_dir=run")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["evaluation"]["mean"] > 8
    done = ppo("--resume=run", "--total_steps=2112", name)
    assert (done.returncode, done.stderr) == (0, "")  # and so exactly
    done = ppo("evaluate", "run", "--episodes=3", name)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_without_an_extension_its_policies_act_and_its_runs_do_not_go_on(
    ppo: Run, tmp_path: Path
) -> None:
    installed(tmp_path / "site")
    done = ppo(*FLAGS.split(), "--note=hello", "--run_dir=used")
    assert (done.returncode, done.stderr) == (0, "")
    assert load(tmp_path / "used" / "checkpoints" / "last.safetensors")["config"]["note"] == "hello"
    done = ppo(*FLAGS.split(), "--run_dir=unused")
    assert (done.returncode, done.stderr) == (0, "")
    shutil.rmtree(tmp_path / "site")
    for run in ("used", "unused"):
        done = ppo("evaluate", run, "--episodes=1")
        assert (done.returncode, done.stderr) == (0, "")
    done = ppo("--resume=unused", "--total_steps=96")
    assert (done.returncode, done.stderr) == (0, "")
    done = ppo("--resume=used", "--total_steps=96")
    assert done.returncode == 3
    assert "was made with note=hello, a flag of an extension that is not here" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_extension_without_another_that_it_needs_is_left_out(ppo: Run, tmp_path: Path) -> None:
    installed(tmp_path / "site", "plugin:NEEDY")
    done = ppo("--help")
    assert "Notes" not in done.stdout
    assert done.stderr == "warning: the extension plugin is left out: it needs nobody\n"


def test_entry_points_that_cannot_be_read_are_left_out_with_a_warning(
    ppo: Run, tmp_path: Path
) -> None:
    for name in ("text", "folder"):
        (tmp_path / "site" / f"{name}-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "site/text-1.0.dist-info/entry_points.txt").write_bytes(b"[ppo.extras]\n\xff = 1")
    (tmp_path / "site/folder-1.0.dist-info/entry_points.txt").mkdir()
    done = ppo("--help")
    folder, text = sorted(done.stderr.splitlines())
    assert folder.startswith("warning: the extensions of folder-1.0 are left out: NotRegular: ")
    assert text.startswith("warning: the extensions of text-1.0 are left out: 'utf-8' codec ")
    assert done.returncode == 0


def test_a_start_without_packages_that_extend_it_does_not_import_importlib_metadata(
    tmp_path: Path,
) -> None:
    code = "import sys, ppo.config.config; print('importlib.metadata' in sys.modules)"
    assert python(code, tmp_path).stdout == "False\n"
    installed(tmp_path / "site")
    assert python(code, tmp_path).stdout == "True\n"


def test_a_broken_extension_is_left_out_with_a_warning(ppo: Run, tmp_path: Path) -> None:
    installed(tmp_path / "site", "plugin:NOTHING")
    done = ppo("--help")
    assert done.returncode == 0
    assert done.stderr == (
        "warning: the extension plugin is left out: AttributeError: module 'plugin' has no "
        "attribute 'NOTHING'\n"
    )
