"""Each example runs: the commands of its docstring, for about two iterations."""

import ast
import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ppo.cli import main
from tests.running import ROOT, python

EXAMPLES = [*sorted(ROOT.glob("examples/*.py")), ROOT / "examples/own_project/train.py"]
SHORT: dict[str, Any] = {
    "total_steps": 256,
    "num_envs": 4,
    "num_steps": 32,
    "num_workers": 0,
    "batch_size": 64,
    "hidden_size": 8,
    "eval_episodes": 2,
}
ARRAY = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}


def commands_of(path: Path) -> list[list[str]]:
    """Return the arguments of Python in the docstring's commands, for two iterations: of main.py by
    flags, of a script by its argument, the number of steps, if it has none yet."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    lines = docstring.replace("\\\n", "").splitlines()
    found = []
    for line in [x for x in lines if x.startswith("python ")]:
        script, *arguments = shlex.split(line)[1:]
        if script == "main.py":
            flags = [f"--{name}={value}" for name, value in SHORT.items()]
            own = [x for x in arguments if x[2:].partition("=")[0] not in SHORT]
            found.append([str(ROOT / script), *own, *flags])
        else:
            file = next(x for x in (ROOT / script, path.parent / script) if x.exists())
            found.append([str(file), *(arguments or ["4096"])])
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    commands = commands_of(path)
    assert commands
    for command in commands:
        done = python(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "warning" not in done.stderr


@pytest.mark.parametrize(
    "flag", ["--normalize_observations=True", "--policy_keys=mask", "--env_name=CartPole-v1"]
)
def test_a_set_is_not_read_without_its_mask(flag, capsys):
    given = {"--env_name": "examples.entities:Forage", "--normalize_observations": "False"}
    given |= {flag.partition("=")[0]: flag.partition("=")[2], "--num_workers": "0"}
    line = [f"{name}={value}" for name, value in given.items()]
    assert main([*line, "--model=examples.entities:SetActorCritic"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_notebook(tmp_path):
    notebook = json.loads((ROOT / "examples/own_project/notebook.ipynb").read_text())
    cells = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    texts = ["".join(lines) for lines in cells if not any("%pip" in x for x in lines)]
    text = "\n".join(texts).replace("total_steps=20_000", "total_steps=4096")
    (tmp_path / "cells.py").write_text(text)
    done = python("cells.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "variables", "job"),
    [
        pytest.param(0, {}, "", id="complete"),
        pytest.param(1, {}, "", id="failed"),
        pytest.param(143, {}, "5", id="stopped"),
        pytest.param(143, ARRAY, "7_2", id="array"),
    ],
)
def test_a_job_of_slurm_is_queued_again_only_if_it_was_stopped(code, variables, job, tmp_path):
    for name, rest in {"srun": f"exit {code}", "scontrol": ""}.items():
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n{rest}\n')
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "SLURM_JOB_ID": "5", "SLURM_CPUS_PER_TASK": "4", **variables}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    command = ["bash", str(ROOT / "examples/slurm/train.sbatch"), "--num_envs=4"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    first, *later = done.stdout.splitlines()
    name = "slurm-7_2 --seed=2" if variables else "slurm-5"
    flags = f"--resume=auto --run_dir=runs/{name} --num_envs=4"
    assert first == f"srun --cpus-per-task=4 python main.py {flags}"
    assert later == ([f"scontrol requeue {job}"] if job else [])
    assert done.returncode == (0 if job else code)
