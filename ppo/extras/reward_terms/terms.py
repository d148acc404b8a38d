"""Read numbers beside the reward, which an environment reports in each step's info."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env, Wrapper
from numpy import ndarray

from ppo.envs.episodes import StepResult
from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.values import describe_value
from ppo.errors import suggest
from ppo.extras.reward_terms.flags import RewardTermFlags

if TYPE_CHECKING:
    from ppo.config.config import Config


def width(config: "Config") -> int:
    """Return how many numbers a run keeps of each step."""
    return len(RewardTermFlags.of(config).reward_term)


def wrap(config: "Config", env: Env) -> Env:
    """Let an environment keep the numbers, if there are some to keep."""
    names = RewardTermFlags.of(config).reward_term
    return KeepTerms(env, names) if names else env


def reader(env: Env) -> Callable[[], ndarray]:
    """Return what takes the numbers of an environment's last step."""
    return env.get_wrapper_attr("take_terms")


class KeepTerms(Wrapper):
    """Sum the numbers that infos have under some names, until they are taken: over the repetitions
    of an action."""

    def __init__(self, env: Env, names: Sequence[str]) -> None:
        super().__init__(env)
        self.names = names
        self.sums = np.zeros(len(names))
        self.problem: EnvironmentUnavailable | None = None

    def step(self, action: Any) -> StepResult:
        result = self.env.step(action)
        try:
            self.sums += read_terms(result[-1], self.names)
        except EnvironmentUnavailable as error:  # which counts only if they are taken
            self.problem = error
        return result

    def take_terms(self) -> ndarray:
        """Return the sums (len(names),). Raises EnvironmentUnavailable if one of the numbers was
        missing or not finite."""
        if self.problem:
            raise self.problem
        sums, self.sums = self.sums, np.zeros(len(self.names))
        return sums


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
