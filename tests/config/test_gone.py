"""Flags of version 1 that are gone: what is said of them, and files that hold them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ppo import Learner, load_policy
from ppo.config.config import Config
from ppo.config.flags import check_values, parse_flags
from ppo.config.gone import GONE
from ppo.errors import ConfigError
from ppo.run.checkpoint import load, newest_first, save
from tests.running import ROOT, Call


@pytest.mark.parametrize("name", GONE)
def test_a_flag_that_is_gone_is_answered_by_what_replaces_it(name: str) -> None:
    said = rf"unknown flag --{name}: it is gone since version 2: {GONE[name]}"
    with pytest.raises(ConfigError, match=said):
        parse_flags([f"--{name.replace('_', '-')}=1"], Config)
    with pytest.raises(ConfigError, match=said):
        check_values(Config, {name: True})


def test_a_command_that_is_gone_is_answered_too(call: Call) -> None:
    code, _, errors = call("render", "runs/x")
    assert code == 2
    assert "unknown command render; it is gone since version 2: give ppo evaluate RUN " in errors


class Standardizing(Learner):
    """Overrides what version 1 called."""

    def standardize(self, advantages: Any) -> Any:
        return advantages


def test_a_learner_that_overrides_what_is_not_called_is_refused(call: Call) -> None:
    learner = "--learner=tests.config.test_gone:Standardizing"
    code, _, errors = call("--env_name=CartPole-v1", "--preset=none", learner, "--num_workers=0")
    assert (code, errors.count("\n")) == (2, 1)
    assert "Standardizing.standardize is not called since version 2: do it in loss" in errors


def test_policies_of_version_1_are_read() -> None:
    path = ROOT / "policies" / "CartPole-v1.safetensors"
    assert load(path)["config"].keys() >= GONE.keys()
    assert load_policy(path).evaluate(1).mean > 400


@pytest.fixture
def old_run(cartpole_run: Path, tmp_path: Path) -> Path:
    """A run as version 1 would have left it."""
    run = Path(shutil.copytree(cartpole_run, tmp_path / "run", symlinks=True))
    path = newest_first(run / "checkpoints")[0]
    state: dict[str, Any] = load(path)
    state["config"] |= {"compile": False, "overlap": True, "fresh_env_per_episode": False}
    state["acting.weights"] = state["model.value_head.weight"].clone()
    state["faults"]["log_dropped"] = 1
    save(path, state)
    return run


def test_a_run_that_used_what_is_gone_goes_on_and_says_so(old_run: Path, call: Call) -> None:
    code, printed, errors = call(f"--resume={old_run}", "--total_steps=5376", "--report=False")
    assert (code, errors) == (0, "")
    assert "resume is not exact: " in printed
    assert "overlap is gone, it was True" in " ".join(printed.split())
