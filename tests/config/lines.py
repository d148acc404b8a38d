"""Command lines as a Config, or as the sentence that refuses them, for tests of flags."""

import shlex

import pytest

from ppo.config.config import Config
from ppo.config.flags import parse_flags
from ppo.errors import ConfigError


def config_of(line: str) -> Config:
    return Config(**parse_flags(shlex.split(line), Config))


def error_of(line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config_of(line)
    return str(caught.value)


def assert_one_sentence(message: str, *named: str) -> None:
    assert "\n" not in message
    for text in named:
        assert text in message
