"""Flags of where a run is and how it is watched, which a checkpoint does not hold."""

import pytest

from ppo.config.config import Config
from ppo.config.run_flags import LOGGERS, ExecutionFlags, LoggingFlags, RunFlags, TimeoutFlags
from ppo.errors import ConfigError


def test_logging_changes_nothing_of_the_run() -> None:
    assert LoggingFlags.names(scope="run") == LoggingFlags.names()
    assert {*RunFlags.names(scope="training")} == {"eval_episodes", "eval_every", "eval_max_steps"}
    assert not ExecutionFlags.names(scope="run")
    assert {*TimeoutFlags.names(scope="run")} == {"step_timeout", "reset_timeout"}


def test_hosts_may_differ_in_workers_and_folders_only() -> None:
    assert {*Config.names(per_host=True)} == {"num_workers", "run_dir", "resume"}


@pytest.mark.parametrize("names", ["none", *LOGGERS, ",".join(LOGGERS), "wandb,console"])
def test_loggers_are_chosen_by_name(names: str) -> None:
    assert Config(logger=names).logger == names


@pytest.mark.parametrize("names", ["none,console", "console,", "printer", "console wandb"])
def test_an_unknown_logger_is_answered_with_the_known_ones(names: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(logger=names)
    known = ",".join(LOGGERS)
    assert str(caught.value) == f"--logger={names}: expected none, or some of {known}"


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:3", "mps", "auto"])
def test_devices_are_named_as_torch_names_them(device: str) -> None:
    assert Config(device=device).device == device
