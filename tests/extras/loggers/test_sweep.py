"""The sweep of Weights & Biases in docs/usage.md: its flags, and a run as an agent starts it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ppo.config.config import Config
from ppo.extras.loggers.names import GROUPED
from ppo.system.files import read_json_lines
from tests.running import ROOT, metrics

(TEXT,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "usage.md").read_text(), re.DOTALL)
SWEEP = yaml.safe_load(TEXT)  # as wandb reads it


def values_of(parameter: dict[str, Any]) -> list[Any]:
    """The values that a sweep may draw, of a range its ends."""
    if "min" in parameter:
        return [parameter["min"], parameter["max"]]
    return parameter.get("values") or [parameter["value"]]


def test_each_parameter_of_the_sweep_is_a_flag_that_takes_its_values() -> None:
    parameters = SWEEP["parameters"]
    assert len(parameters) > 5
    for name, parameter in parameters.items():
        for value in values_of(parameter):
            assert not isinstance(value, str) or name in ("env_name", "logger")
            Config(**{name: value})
    assert SWEEP["metric"]["name"] in GROUPED.values()


@pytest.mark.slow
def test_an_agent_of_the_sweep_starts_a_run_that_trains(tmp_path: Path) -> None:
    drawn = {name: values_of(parameter)[0] for name, parameter in SWEEP["parameters"].items()}
    arguments = [f"--{name}={value}" for name, value in drawn.items()]
    assert SWEEP["command"] == ["python", "main.py", "${args}"]
    brief = ["--num_iterations=2", "--eval_episodes=0", f"--run_dir={tmp_path / 'run'}"]
    agent = {"WANDB_SWEEP_ID": "abcd1234", "WANDB_RUN_ID": "efgh5678", "WANDB_PROJECT": "cartpole"}
    done = subprocess.run(
        [sys.executable, "main.py", *arguments, *brief],
        cwd=ROOT,
        env={**os.environ, **agent, "WANDB_MODE": "offline"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(metrics(tmp_path / "run")) == 2
    kinds = {event["kind"] for event in read_json_lines(tmp_path / "run" / "events.jsonl")}
    assert not kinds & {"logger_failed"}
    (logged,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    assert logged.name.endswith("efgh5678")  # the agent's, by which it finds the results
