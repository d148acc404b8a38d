"""The code in examples/ and the README, run as a user would."""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from ppo.config.config import Config
from ppo.config.flags import parse_flags
from ppo.extras.demonstrations.format import load_demonstrations
from ppo.extras.presets.presets import load_preset
from tests.running import ROOT, Call, metrics, run_main

STOPPED = "kill -TERM $PPID; sleep 0.2; exit 1"  # as its parent is by SLURM, and torchrun ends then
SHORT = ("--num_iterations=2", "--num_steps=16", "--num_envs=4", "--eval_episodes=1")


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "flags",
    [
        ("--env_name=examples.own_environment:HiddenVelocity", "--model=lstm"),
        ("--env_name=examples.own_environment:HiddenVelocity", "--model=gru"),
        ("--env_name=CartPole-v1", "--model=examples.own_model:NormalizedActorCritic"),
    ],
)
def test_examples_for_the_command_line(flags: tuple[str, ...], tmp_path: Path) -> None:
    done = run_main(*flags, *SHORT, "--preset=none", f"--run_dir={tmp_path}/run")
    assert done.returncode == 0, done.stderr
    assert [row["iteration"] for row in metrics(tmp_path / "run")] == ["1", "2"]


def test_the_wrapper_ends_an_episode_where_the_simulator_raises(tmp_path: Path) -> None:
    about = json.dumps({"fault": "raise", "always": True, "marker": str(tmp_path / "marker")})
    fault = ("--env_name=tests.faults:Fault", f"--env_kwargs={about}", "--preset=none")
    wrapper = "--wrapper=examples.own_wrapper:EndAtException"
    done = run_main(*fault, wrapper, *SHORT, "--num_steps=32", f"--run_dir={tmp_path}/run")
    assert (done.returncode, done.stderr) == (0, "")
    first, last = metrics(tmp_path / "run")
    assert (first["env/failed"], last["faults/worker_lost"]) == ("0", "0")
    assert last["env/failed"] == "1"


@pytest.mark.slow
def test_examples_of_callbacks(tmp_path: Path) -> None:
    done = run_main(
        "--env_name=CartPole-v1",
        "--callback=examples.own_callback:Snapshots",
        "--callback=examples.own_metric:Repetition",
        *SHORT,
        "--eval_every=1",
        "--preset=none",
        f"--run_dir={tmp_path}/run",
    )
    assert done.returncode == 0, done.stderr
    for row in metrics(tmp_path / "run"):
        assert float(row["evaluation/shortest_episode"]) >= 8
        assert 0 < float(row["actions/repeated"]) < 1
    saved = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert "000000000064.safetensors" in saved  # asked for by the callback


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own_loss", "use_api"])
def test_examples_for_python_learn(name: str, tmp_path: Path) -> None:
    """They are run in another folder, where they leave their run."""
    command = [sys.executable, "-m", f"examples.{name}"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
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


def test_a_dataset_of_minari_becomes_demonstrations(tmp_path: Path) -> None:
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    env = {"PYTHONPATH": str(ROOT), "PATH": "", "MINARI_DATASETS_PATH": str(tmp_path / "sets")}
    steps = [3, 5]
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=number,
            observations=np.full((length + 1, 4), number, np.float32),
            actions=np.zeros(length, np.int64),
            rewards=np.ones(length),
            terminations=np.arange(length) == length - 1 if number else np.zeros(length, bool),
            truncations=np.zeros(length, bool),
        )
        for number, length in enumerate(steps)
    ]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an author to name
        patch.setenv("MINARI_DATASETS_PATH", env["MINARI_DATASETS_PATH"])
        cartpole = gymnasium.make("CartPole-v1")
        minari.create_dataset_from_buffers(
            "mine-v0",
            buffers,
            observation_space=cartpole.observation_space,
            action_space=cartpole.action_space,
        )
    command = [sys.executable, "-m", "examples.minari_dataset", "mine-v0", "mine.npz"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = load_demonstrations(str(tmp_path / "mine.npz"))
    assert [len(rows) - 1 for rows in found.rows] == steps
    assert found.truncations.nonzero()[0].tolist() == [2]
    assert found.terminations.nonzero()[0].tolist() == [7]


@pytest.mark.slow
def test_the_example_of_cloning_learns_from_its_expert(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.clone"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    shown = dict(re.findall(r"^(\w+): ([\d.]+)", done.stdout, re.MULTILINE))
    assert float(shown["expert"]) > 300
    assert float(shown["clone"]) > 300
    assert float(shown["trained"]) >= 475
    assert len([*(tmp_path / "runs").iterdir()]) == 2


def started_by_slurm(name: str, given: list[str], ends: str, folder: Path) -> tuple[str, str]:
    """Run a script of examples/slurm as a job, in which torchrun and python end by a line of bash;
    return the arguments of these, and what scontrol is asked for."""
    programs = {
        "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
        "scontrol": '[ "$1" = show ] && echo host7 && echo host8; echo "$@" >> scontrol.txt',
        "torchrun": f'echo "$@" > started.txt; {ends}',
        "python": f'echo "$@" > started.txt; {ends}',
    }
    for program, text in programs.items():
        path = folder / program
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    job = {
        "SLURM_JOB_ID": "42",
        "SLURM_ARRAY_JOB_ID": "40",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NODELIST": "host[7-8]",
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    script = ["bash", str(ROOT / "examples" / "slurm" / f"{name}.sbatch"), *given]
    subprocess.run(script, cwd=folder, env=job, timeout=30)
    asked = folder / "scontrol.txt"
    started = (folder / "started.txt").read_text().strip()
    return started, asked.read_text() if asked.exists() else ""


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        (
            ["--env_name=CartPole-v1"],
            "--resume=auto --seed=3 --run_dir=runs/slurm-40/s3 --env_name=CartPole-v1",
        ),
        (["tune", "CartPole-v1"], "tune CartPole-v1 --name=slurm-40"),
    ],
)
@pytest.mark.parametrize(
    ("ends", "requeued"), [("exit 0", ""), ("exit 1", ""), ("exit 143", "requeue 40_3\n")]
)
def test_an_array_of_jobs_trains_seeds_or_shares_a_study(
    given: list[str], flags: str, ends: str, requeued: str, tmp_path: Path
) -> None:
    assert started_by_slurm("array", given, ends, tmp_path) == (f"main.py {flags}", requeued)


@pytest.mark.parametrize(
    ("name", "torchrun", "is_complete", "is_queued_again"),
    [
        ("one_machine", "exit 0", True, False),
        ("one_machine", "exit 1", False, False),
        ("one_machine", STOPPED, False, True),
        ("machines", STOPPED, False, True),
        ("machines", STOPPED, True, False),
    ],
)
def test_a_job_for_slurm_is_queued_again_if_it_was_stopped(
    name: str, torchrun: str, is_complete: bool, is_queued_again: bool, tmp_path: Path
) -> None:
    if is_complete:
        (tmp_path / "runs" / "slurm-42").mkdir(parents=True)
        (tmp_path / "runs" / "slurm-42" / "summary.json").touch()
    started, asked = started_by_slurm(name, ["--env_name=CartPole-v1"], torchrun, tmp_path)
    assert ("requeue 42" in asked) == is_queued_again
    options, flags = started.split(" main.py ")
    assert ("--rdzv_endpoint=host7:20042" in options) == (name == "machines")
    given = parse_flags(flags.split(), Config)
    assert given == {"env_name": "CartPole-v1", "run_dir": "runs/slurm-42", "resume": "auto"}


def test_every_command_of_the_documentation_is_one() -> None:
    """Flags exist, values fit, presets are there: for the README, docs/ and results/."""
    found = []
    for path in [
        ROOT / "README.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("results/*/README.md"),
        *ROOT.glob("results/*.md"),
    ]:
        found += re.findall(
            r"(?:python|torchrun [^`|\n]+) main\.py ((?:--[^`|\n]+)+)", path.read_text()
        )
    commands = [
        shlex.split(text.replace("SEED", "1").replace("=ID", "=CartPole-v1")) for text in found
    ]
    assert len(commands) > 10
    for flags in commands:
        if flags != ["--help"] and "--config=mine.toml" not in flags:
            given = parse_flags(flags, Config)
            load_preset(given.get("preset", "auto"), given.get("env_name", ""), lambda: "discrete")
            Config(**given)


EVERYDAY = ("README.md", "docs/usage.md", "docs/your-own.md")
BRIEFLY = "--num_iterations=2 --eval_episodes=1 --report=False --max_time=5s"
# They need what is not here, or have tests of their own.
ELSEWHERE = (
    *("cuda", "human", "/lander", "reach", "Reach", "ENV", "RUN", "--help", "wandb", "own_logger"),
    *("set runs", "runs/my ", "tune", "seeds", "watch"),
)


def everyday_commands() -> list[str]:
    """Return the commands that pages print, all that end soon if they are told to."""
    text = "\n".join((ROOT / page).read_text() for page in EVERYDAY)
    found = re.findall(r"(?:python main\.py|(?<=[`\n])ppo) [^`\n|]+", text)
    return [
        line
        for line in dict.fromkeys(line.strip() for line in found)
        if not (any(word in line for word in ELSEWHERE) or re.fullmatch(r"ppo \w+", line))
    ]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("line", everyday_commands())
def test_a_command_of_the_documentation_runs_as_printed(
    line: str, cartpole_copy: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    folder = cartpole_copy.parent
    monkeypatch.chdir(folder)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delitem(sys.modules, "my_env", raising=False)  # of another test
    shutil.copytree(cartpole_copy, folder / "runs" / "OTHER", symlinks=True)
    cartpole_copy.rename(folder / "runs" / "NAME")
    shutil.copytree("runs/NAME/checkpoints", "runs/NAME/milestones")
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "mine.toml").write_text('env_name = "CartPole-v1"\n')
    readme = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(import .*?)```", readme, re.S)
    (folder / "my_env.py").write_text(code)
    words = shlex.split(line.removeprefix("python main.py").removeprefix("ppo"))
    is_training = words[0].startswith("-") or words[0] == "train"
    if is_training and not any(word.startswith("--resume=runs") for word in words):
        words += BRIEFLY.split()
    words = [file for word in words for file in glob.glob(word) or [word]]  # as a shell does
    exit_code, _, err = call(*words)
    assert (exit_code, err) == (0, "")
