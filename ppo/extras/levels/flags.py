"""Flags of levels."""

import re
from typing import Any, Literal

from ppo.config.flags import Flags, Fraction, Positive, fixed_flag, flag
from ppo.errors import ConfigError
from ppo.system.files import parse_json

SEED = "seed"  # the name by which levels are seeds of episodes
MAX_LEVELS = 10_000
RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


class LevelFlags(Flags):
    """Levels."""

    levels: str | None = fixed_flag(
        None,
        "Levels, of which each episode of training is on one: an attribute of the environment, set "
        "as by Run.set_env before the reset, and its values, such as level:0-49 or "
        "terrain:flat,rough,stairs; with seed:0-199 they are seeds of resets; none: no levels.",
        pattern=r"[A-Za-z]\w*:[^,]+(,[^,]+)*",
        form="name:0-49 or name:a,b,c",
        environment=True,
    )
    level_scores: Literal["advantage", "return", "uniform"] = fixed_flag(
        "advantage",
        "Levels that are drawn more often: those of large advantages (the mean of their absolute "
        "values), or of returns with a large standard deviation; uniform: all alike.",
    )
    level_temperature: Positive = flag(
        1.0,
        "Temperature of the draw by the ranks of scores, beta: a level has the weight "
        "rank^(-1 / temperature). A small one: nearly all episodes of a rollout are on one level.",
    )
    level_staleness: Fraction = flag(
        0.1, "Share of the draws that prefer levels which have not been played for long."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels:
            parse_levels(self.levels)
            return
        defaults = LevelFlags.defaults()
        for name in ("level_scores", "level_temperature", "level_staleness"):
            if getattr(self, name) != defaults[name]:
                raise ConfigError(f"--{name} is about levels: give --levels as well")


def parse_levels(text: str) -> tuple[str, list[Any]]:
    """Return the name and the values of --levels. Raises ConfigError if it has too many or none,
    the same one twice, or seeds that are none."""
    name, _, items = text.partition(":")
    values: list[Any] = []
    for item in map(str.strip, items.split(",")):
        if found := RANGE.fullmatch(item):
            first, last = map(int, found.groups())
            values += range(first, min(last, first + MAX_LEVELS) + 1)
        else:
            values.append(_value(item))
    problem = ""
    if not 1 <= len(values) <= MAX_LEVELS:
        problem = f"give 1 to {MAX_LEVELS:,} levels"
    elif len({*values}) < len(values):
        problem = "give each level once"
    elif name == SEED and not all(type(value) is int and value >= 0 for value in values):
        problem = "give seeds that are integers from 0 on"
    if problem:
        raise ConfigError(f"--levels={text[:100]}: {problem}")
    return name, values


def _value(item: str) -> Any:
    """Return the number or the truth value that a text is in JSON, else the text itself."""
    try:
        value = parse_json(item)
    except ValueError:
        return item
    return value if isinstance(value, (int, float)) else item
