"""Spaces of flags' values that ppo tune searches."""

import pytest

from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.extras.tools.tune.space import SPACES, default_space, parse_space


class Recorder:
    """A trial that draws the greatest value, and notes between which it could choose."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple] = {}

    def suggest_categorical(self, name: str, words: list[str]) -> str:
        self.asked[name] = tuple(words)
        return words[-1]

    def suggest_int(self, name: str, low: int, high: int, log: bool) -> int:
        self.asked[name] = (low, high, log)
        return high

    def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:
        self.asked[name] = (low, high, log)
        return high


def test_a_space_is_drawn_from_as_its_text_says():
    rates = "learning_rate=linear:log(1e-4,3.14159e-3)"
    text = f"{rates} gamma=range(0.9,0.9999) num_steps=log(64,1234567)"
    trial = Recorder()
    drawn = [x.suggest(trial) for x in parse_space(f"{text} clip_value_coef=none|0.2", {})]
    assert drawn == ["linear:0.00314159", "0.9999", "1234567", "0.2"]
    assert trial.asked == {
        "learning_rate": (1e-4, 3.14159e-3, True),
        "gamma": (0.9, 0.9999, False),
        "num_steps": (64, 1234567, True),
        "clip_value_coef": ("none", "0.2"),
    }


def test_flags_take_all_that_is_searched_by_default():
    for text in SPACES.values():
        Config(**{x.name: x.suggest(Recorder()) for x in parse_space(text, {})})


def test_what_is_given_is_not_searched_by_default():
    given = {"gamma": "0.9", "num_minibatches": "4"}
    names = [x.name for x in parse_space(default_space("discrete", given), given)]
    assert "learning_rate" in names
    assert not {"gamma", "batch_size"} & {*names}  # batch_size would count more than was given


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("gamma", "--space: gamma names no values: give flag=log(low,high)"),
        ("gamme=0.9|1", "--space: gamme cannot be searched: did you mean gamma?"),
        ("seed=1|2", "--space: seed cannot be searched"),
        ("gamma=range(0.9,1.1)", "--gamma=1.1: expected number >= 0 and <= 1"),
        ("gamma=range(1,0.9)", "--space: gamma=range(1,0.9): give a lower bound"),
        ("learning_rate=log(0,1)", "--space: learning_rate=log(0,1): give a lower bound, above 0"),
        ("num_envs=4|8", "--num_envs is searched already: give it once"),
        (" ", "--space: give at least one flag with its values"),
    ],
)
def test_a_space_that_cannot_be_is_refused(space, words):
    with pytest.raises(ConfigError) as caught:
        parse_space(space, {"num_envs": "4"})
    assert words in str(caught.value)
