"""Flags of where a run is and how it is watched, which a checkpoint does not hold."""

import pytest

from ppo.config.config import Config
from ppo.config.run_flags import LOGGERS, ExecutionFlags, LoggingFlags, RunFlags
from ppo.errors import ConfigError


def test_logging_changes_nothing_of_the_run() -> None:
    assert LoggingFlags.names(scope="run") == LoggingFlags.names()
    assert {*RunFlags.names(scope="training")} == {"eval_episodes", "eval_every", "eval_max_steps"}
    assert ExecutionFlags.names(scope="run") == ("max_losses",)


def test_loggers_are_chosen_by_name() -> None:
    assert Config(logger="none").loggers == set()
    assert Config(logger=",".join(LOGGERS)).loggers == {"console", *LOGGERS}
    assert Config(logger="wandb").loggers == {"console", "wandb"}


def test_loggers_of_ones_own_are_given_one_by_one() -> None:
    own = "my_logger.py:Mine(project='a,b', size=(1, 2))"
    config = Config(logger=["wandb,tensorboard", own, "module:Other"])
    assert config.loggers == {"console", "wandb", "tensorboard", own, "module:Other"}
    assert Config(logger=["none", own]).loggers == Config(logger=own, verbose=0).loggers == {own}
    with pytest.raises(ConfigError, match="expected none, some of console"):
        Config(logger="wandb,module:Other")


@pytest.mark.parametrize("names", ["none,console", "printer"])
def test_an_unknown_logger_is_answered_with_the_known_ones(names: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(logger=names)
    known = ",".join(LOGGERS)
    expected = f"expected none, some of {known}, or module:Name(name=value, ...)"
    assert str(caught.value) == f"--logger={names}: {expected}"
