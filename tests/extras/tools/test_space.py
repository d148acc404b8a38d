"""Spaces of flags' values that ppo tune searches."""

import optuna
import pytest

from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.extras.tools.tune.space import SPACES, default_space, draw, fitting, parse_space


class Recorder:
    """A trial that draws the greatest value, and notes between which it could choose."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple] = {}

    def suggest_categorical(self, name: str, words: list[str]) -> str:
        self.asked[name] = tuple(words)
        assert words
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
    space = parse_space(f"{text} clip_value_coef=none|0.2", {})
    drawn = draw(space, trial, Config(total_steps=10**9))
    assert [*drawn.values()] == ["linear:0.00314159", "0.9999", "1234567", "0.2"]
    assert trial.asked == {
        "learning_rate": (1e-4, 3.14159e-3, True),
        "gamma": (0.9, 0.9999, False),
        "num_steps": (64, 1234567, True),
        "clip_value_coef": ("none", "0.2"),
    }


def test_flags_take_all_that_is_searched_by_default():
    for text in SPACES.values():
        Config(**draw(parse_space(text, {}), Recorder(), Config()))


@pytest.mark.parametrize(
    ("space", "steps", "drawn"),
    [
        ("num_steps=64|512|1024", 4096, {"num_steps": "512"}),
        ("gamma=0.9|1 num_steps=log(16,1024)", 4096, {"gamma": "1", "num_steps": "512"}),
        ("num_envs=1|16|64 num_steps=64|2048", 4096, {"num_envs": "64", "num_steps": "64"}),
        ("num_steps=64|2048 num_envs=range(1,64)", 4096, {"num_steps": "2048", "num_envs": "2"}),
        ("total_steps=256|1024|2048 num_steps=64|128", 0, {"total_steps": "2048"}),
        ("num_steps=64|512|1024", 0, {"num_steps": "1024"}),
    ],
)
def test_only_rollouts_within_the_budget_are_drawn(space, steps, drawn):
    config = Config(total_steps=steps)
    found = draw(fitting(parse_space(space, {}), config), Recorder(), config)
    assert drawn.items() <= found.items()
    Config(**{"total_steps": steps, **found})


def test_a_parameter_has_the_same_choices_in_all_trials():
    """As Optuna demands; the number of environments decides which rollouts fit."""
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(multivariate=True, seed=0))
    config = Config(total_steps=4096)
    space = fitting(parse_space("num_envs=1|8|64 num_steps=64|512|4096|8192", {}), config)
    sizes = set()
    for number in range(40):
        trial = study.ask()
        found = draw(space, trial, config)
        sizes.add(int(found["num_envs"]) * int(found["num_steps"]))
        study.tell(trial, float(number % 7))
    assert max(sizes) == 4096


def test_a_space_without_a_rollout_within_the_budget_is_refused():
    with pytest.raises(ConfigError, match="no num_steps leads to a rollout"):
        fitting(parse_space("num_steps=1024|2048", {}), Config(total_steps=4096))


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
