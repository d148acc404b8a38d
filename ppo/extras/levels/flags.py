"""Flags of levels."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

from ppo.config.flags import Flags, Fraction, Positive, fixed_flag, flag
from ppo.errors import ConfigError
from ppo.system.files import parse_json

SEED = "seed"  # the name by which levels are seeds of episodes
MAX_LEVELS = 10_000
RANGE = re.compile(r"(-?\d{1,9}) *- *(-?\d{1,9})")
LIKE_NUMBERS = re.compile(r"[-+.\d ]+")
FORM = {"pattern": r"[A-Za-z]\w*:[^,]+(,[^,]+)*", "form": "name:0-49 or name:a,b,c"}


class LevelFlags(Flags):
    """Levels."""

    levels: str | None = fixed_flag(
        None,
        "Levels, of which each episode of training is on one: an attribute of the environment, set "
        "as by Run.set_env before the reset, and its values, such as level:0-49 or "
        "terrain:flat,rough,stairs; with seed:0-199 they are seeds of resets; none: no levels.",
        environment=True,
        **FORM,
    )
    level_scores: Literal["advantage", "return", "uniform"] = fixed_flag(
        "advantage",
        "Levels that are drawn more often: those of large advantages (the mean of their absolute "
        "values), or of returns with a large standard deviation; uniform: all alike.",
        needs="levels",
    )
    level_temperature: Positive = flag(
        1.0,
        "Temperature of the draw by the ranks of scores, beta: a level has the weight "
        "rank^(-1 / temperature). A small one: nearly all episodes of a rollout are on one level.",
        needs="levels",
    )
    level_staleness: Fraction = flag(
        0.1,
        "Share of the draws that prefer levels which have not been played for long.",
        needs="levels",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels:
            parse_levels(self.levels)


class PlayedLevels(Flags):
    """Levels."""

    levels: str | None = flag(
        None,
        "Levels that episodes are on, such as level:50-99, which it was not trained on; none: "
        "those of the run.",
        **FORM,
    )


def parse_levels(text: str) -> tuple[str, list[Any]]:
    """Return the name and the values of --levels. Raises ConfigError if it has too many or none,
    the same one twice, seeds that are none, or numbers that are none."""
    name, _, items = text.partition(":")
    try:
        values = [value for item in items.split(",") for value in _values(item.strip())]
        if not 1 <= len(values) <= MAX_LEVELS:
            raise ValueError(f"give 1 to {MAX_LEVELS:,} levels")
        if len({*values}) < len(values):
            raise ValueError("give each level once")
        if name == SEED and not all(type(value) is int and value >= 0 for value in values):
            raise ValueError("give seeds that are integers from 0 on")
    except ValueError as error:
        raise ConfigError(f"--levels={text[:100]}: {error}") from error
    return name, values


def _values(item: str) -> Sequence[Any]:
    """Return the integers of a range, of which more than MAX_LEVELS are not counted, or the one
    number, truth value or text that an item is. Raises ValueError if it is none of these."""
    if found := RANGE.fullmatch(item):
        first, last = map(int, found.groups())
        if first > last:
            raise ValueError(f"{item} is no range, give the lower number first")
        return range(first, min(last, first + MAX_LEVELS) + 1)
    with suppress(ValueError):
        value = parse_json(item)
        if isinstance(value, (int, float)):
            return [value]
    if LIKE_NUMBERS.fullmatch(item):
        raise ValueError(f"{item} is neither a number nor a range of integers, such as 0-49")
    return [item]
