"""Checks of environments: each world has its finding."""

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ppo import cli
from tests.worlds import Constant, Counting

GOOD = "determinism: the same seed and actions reproduce the same episodes"


class Worn(Counting):
    """Counts the resets of its whole life."""

    resets = 0

    def reset(self, **options: Any) -> Any:
        self.resets += 1
        return super().reset(**options)

    def observe(self) -> Any:
        return super().observe() + self.resets


class Random(Counting):
    def observe(self) -> Any:
        return np.random.default_rng().random(2)


class Endless(Counting):
    def step(self, action: Any) -> Any:
        return *super().step(action)[:2], False, False, {}


class Parts(Constant):
    """Shows a camera, a place, and a word."""

    observation_space = spaces.Dict(
        camera=spaces.Box(0, 255, (40, 50, 3), np.uint8),
        place=spaces.Discrete(3),
        word=spaces.Text(9),
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        return self.observe(), *super().step(action)[1:]

    def observe(self) -> Any:
        camera = np.full((40, 50, 3), self.steps, np.uint8)
        return {"camera": camera, "place": 1, "word": "here"}


class Wide(Constant):
    action_space = spaces.Dict(arm=spaces.Box(-1, 1, (2,)))


class Odd(Constant):
    """Returns another result in the third step of each episode, or at the reset."""

    def __init__(self, place: int, value: Any) -> None:
        self.place, self.value = place, value

    def reset(self, **options: Any) -> Any:
        results = super().reset(**options)
        return self.value if self.place < 0 else results

    def step(self, action: Any) -> Any:
        results = [*super().step(action)]
        if self.steps == 3:
            results[self.place] = self.value
        return tuple(results)


def check(capsys: pytest.CaptureFixture[str], env: str, *flags: str) -> tuple[int, list[str], str]:
    code = cli.main(["check", f"--env_name=tests.{env}", "--steps=200", *flags])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("worlds:Counting", "rewards: 10 to 14"),
        ("worlds:Counting", GOOD),
        ("worlds:Constant", "episodes: 20, mean return 10, mean length 10, 100% truncated"),
        ("worlds:Constant", "hint: observations never changed"),
        ("worlds:Masked", "episodes: 28, mean return 7, mean length 7, 0% truncated"),
        ("worlds:Unseeded", "hint: the same seed and actions give different episodes"),
        ("test_check:Random", "hint: the same seed and actions give different episodes"),
        ("test_check:Worn", "hint: episodes repeat only in a new environment"),
        ("test_check:Endless", "hint: no episode ended within 200 steps"),
        ("test_check:Parts", "hint: place never changed"),
        ("test_check:Parts", "observations word: Text"),
        ("test_check:Parts", GOOD),
    ],
)
def test_a_finding_is_a_line(env, said, capsys):
    code, lines, error = check(capsys, env)
    assert (code, error) == (0, "")
    assert [line for line in lines if line.startswith(said)]
    assert len(lines) <= 9


@pytest.mark.parametrize(
    ("place", "value", "code", "said"),
    [
        (0, [7], 0, "hint: observations ranged from 1 to 7, outside Box(0.0, 1.0, (1,), float32)"),
        (1, 5000, 0, "rewards: 1 to 5000"),
        (0, [1, 1], 1, "its observation"),
        (0, "text", 1, "its observation"),
        (0, ["text"], 1, "is not of float32"),
        (1, "nan", 1, "its reward must be finite numbers"),
        (1, "much", 1, "its reward 'much' is not a number"),
        (-1, [1], 1, "its reset returned [1], not (observation, info)"),
    ],
)
def test_an_odd_result_is_a_hint_or_an_error(place, value, code, said, capsys):
    kwargs = json.dumps({"place": place, "value": value})
    found, lines, error = check(capsys, "test_check:Odd", f"--env_kwargs={kwargs}")
    assert found == code
    assert [line for line in [*lines, *error.splitlines()] if said in line]
    assert len(error.splitlines()) == bool(code)


def test_large_rewards_are_normalized_but_where_that_is_turned_off(capsys):
    flags = '--env_kwargs={"place": 1, "value": -5000}'
    _, lines, _ = check(capsys, "test_check:Odd", flags, "--normalize_rewards=False")
    assert "hint: rewards are as large as 5000: consider --normalize_rewards" in lines


def test_what_training_refuses_is_refused(capsys):
    assert check(capsys, "test_check:Wide")[0] == 1
    assert check(capsys, "test_check:Absent")[0] == 2
    assert check(capsys, "worlds:Constant", "--model=cnn")[0] == 2
    assert check(capsys, "worlds:Constant", "rubbish", "more")[0] == 2
