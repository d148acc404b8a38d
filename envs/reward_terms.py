"""Numbers beside the reward, which an environment reports in each step's info."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ppo.envs.checks import describe_value
from ppo.envs.errors import EnvironmentUnavailable
from ppo.errors import suggest


def read_terms(info: Mapping[str, Any], names: Sequence[str]) -> list[float]:
    """Return the numbers that the info of a step has under some names.

    Raises EnvironmentUnavailable if one of them is missing or is no finite number."""
    terms = []
    for name in names:
        try:
            number = float(info[name])
        except (KeyError, TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            fix = "let the environment report a finite number in each, or leave it out"
            if name not in info:
                fix = suggest(name, map(str, info), fix)
            raise EnvironmentUnavailable(
                f"--reward_term={name} is {describe_value(info.get(name))} in the info of a step: "
                + fix
            )
        terms.append(number)
    return terms
