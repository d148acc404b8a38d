"""Check what environments return before anything else uses it."""

import math
from collections.abc import Callable
from itertools import zip_longest
from operator import le
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env, spaces

from ppo.envs.episodes import Info, StepResult
from ppo.envs.errors import InvalidEnvOutput
from ppo.envs.inspection import Inspector
from ppo.envs.values import MAX_FLOAT32, MAX_SIZE_FOR_PYTHON, describe_value
from ppo.extras.checks.flags import CheckFlags

if TYPE_CHECKING:
    from ppo.config.config import Config

Checker = Callable[[Any], bool]


def inspect(config: "Config", env: Env) -> Env:
    """Check what an environment returns."""
    return CheckData(env, CheckFlags.of(config).strict_spaces)


class CheckData(Inspector):
    """Validate what an environment returns; raise InvalidEnvOutput for malformed results.

    Malformed are observations that are not finite or whose shape or structure differs from the
    space's, choices that the space does not have, rewards other than one finite number, ends of
    episodes that are neither booleans nor finite numbers, resets that do not return (observation,
    info) and steps that do not return five values. Values of another dtype are cast if only
    precision is lost, which is a problem for the author. Well-formed observations outside of the
    space's bounds are a fault; with is_strict, they are malformed."""

    def __init__(self, env: Env, is_strict: bool = False) -> None:
        super().__init__(env)
        self.is_strict = is_strict
        self.is_converting = False
        self.space = env.observation_space  # of a wrapper it would take time at every step
        self.is_inside = checker(self.space)

    def reset(self, **options: Any) -> tuple[Any, Info]:
        observation, info = check_results("reset", self.env.reset(**options), 2)
        return self._check(observation), info

    def step(self, action: Any) -> StepResult:
        results: Any = self.env.step(action)
        if type(results) is not tuple or len(results) != 5 or type(results[4]) is not dict:
            results = check_results("step", results, 5)  # the slower way, of the unusual case
        observation, reward, terminated, truncated, info = results
        if type(reward) is not float or not -MAX_FLOAT32 <= reward <= MAX_FLOAT32:
            number = check_reward(reward)
            if getattr(reward, "shape", ()):
                self.problems["reward"] = f"its reward is {describe_value(reward)}: return a number"
            reward = number
        if terminated or truncated:
            check_end("termination", terminated)
            check_end("truncation", truncated)
        return self._check(observation), reward, terminated, truncated, info

    def _check(self, observation: Any) -> Any:
        """Return an observation with the dtypes of its space. Raises InvalidEnvOutput."""
        if self.is_converting:
            observation = convert(observation, self.space)
        try:
            is_inside = self.is_inside(observation)
        except InvalidEnvOutput as problem:
            observation = convert(observation, self.space)
            is_inside = self.is_inside(observation)
            self.is_converting = True
            self.problems["observation"] = f"{problem}, to which it is converted: return that"
        if not is_inside:
            self.faults["observation_outside"] += 1
            if self.is_strict:
                raise InvalidEnvOutput(
                    f"its observation {describe_value(observation)} is outside of {self.space}"
                )
        return observation


def check_reward(reward: Any) -> float:
    """Return a reward as a number of Python. Raises InvalidEnvOutput unless it is one finite
    number, as float32, too."""
    number = reward.item() if getattr(reward, "size", None) == 1 else reward
    if not (isinstance(number, (int, float)) and -MAX_FLOAT32 <= number <= MAX_FLOAT32):
        raise InvalidEnvOutput(f"its reward is {describe_value(reward)}, not one finite number")
    return number


def check_end(kind: str, value: Any) -> bool:
    """Return whether an episode has ended. kind: "termination" or "truncation". Raises
    InvalidEnvOutput for what counts as true, but is neither True nor a finite number."""
    if not value:
        return False
    number = value.item() if hasattr(value, "item") else value
    if not (isinstance(number, (int, float)) and math.isfinite(number)):
        raise InvalidEnvOutput(f"its {kind} is {describe_value(value)}, not True or False")
    return True


def check_results(call: str, result: Any, count: int) -> tuple[Any, ...]:
    """Return what a reset or a step returned, as a tuple of so many results, the last one a dict.

    Raises InvalidEnvOutput for anything else."""
    try:
        results = tuple(result)
    except TypeError:
        results = ()
    if len(results) != count or not isinstance(results[-1], dict):
        number = {2: "two", 5: "five"}[count]
        raise InvalidEnvOutput(
            f"its {call} returned {describe_value(result)}, which is not {number} results ending "
            "in a dict"
        )
    return results


def convert(observation: Any, space: Any) -> Any:
    """Cast an observation to the dtypes of its space where only precision is lost."""
    if isinstance(space, spaces.Dict) and isinstance(observation, dict):
        return {key: convert(part, space.get(key)) for key, part in observation.items()}
    if isinstance(space, spaces.Tuple) and isinstance(observation, (tuple, list)):
        return tuple(convert(part, own) for part, own in zip_longest(observation, space))
    try:
        given = np.asarray(observation)
        with np.errstate(all="ignore"):
            found = given.astype(space.dtype)
    except (TypeError, ValueError, AttributeError):
        return observation
    is_number = given.dtype.kind in "biuf"
    is_same = is_number and (found.dtype.kind == "f" or np.array_equal(found, given))
    return found if is_same else observation


def checker(space: Any, name: str = "observation") -> Checker:
    """Return a function that tells whether an observation lies within a space.

    The function raises InvalidEnvOutput for malformed observations. name: what they are called,
    with the keys of a part joined by dots."""
    contains = space.contains

    def is_inside(observation: Any) -> bool:
        if np.shape(observation) != space.shape or np.asarray(observation).dtype.kind not in "iub":
            raise InvalidEnvOutput(
                f"its {name} is {describe_value(observation)}, not one of {space}"
            )
        found = contains(observation)
        if not found and not isinstance(space, spaces.MultiBinary):  # it has no one-hot vector
            raise InvalidEnvOutput(
                f"its {name} {describe_value(observation)} is outside of {space}"
            )
        return found

    match space:
        case spaces.Box():
            return _box_checker(space, name)
        case spaces.Dict():
            return _nested_checker(dict, dict(space.spaces), name)
        case spaces.Tuple():
            return _nested_checker(tuple, dict(enumerate(space)), name)
        case spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return is_inside
    return contains


def _nested_checker(kind: type[Any], parts: dict[Any, Any], name: str) -> Checker:
    checkers = {key: checker(part, f"{name}.{key}") for key, part in parts.items()}

    def is_inside(observation: Any) -> bool:
        if not isinstance(observation, kind) or len(observation) != len(parts):
            raise InvalidEnvOutput(
                f"its {name} is {describe_value(observation)}, not a {kind.__name__} of "
                f"{len(parts)} parts: {', '.join(map(str, parts))}"
            )
        try:
            # No short circuit: malformed parts must be found even after a part out of bounds.
            are_inside = [own(observation[key]) for key, own in checkers.items()]
        except KeyError as error:
            raise InvalidEnvOutput(
                f"its {name} lacks {error}: {describe_value(observation)}"
            ) from error
        return all(are_inside)

    return is_inside


def _box_checker(space: spaces.Box, name: str) -> Checker:
    """Return a checker for a Box; a valid observation, the usual case, takes a single pass."""
    shape = space.shape
    dtype = space.dtype
    largest = largest_number(dtype)
    low = np.maximum(space.low, -largest)
    high = np.minimum(space.high, largest)
    lows = low.ravel().tolist()
    highs = high.ravel().tolist()
    is_small = low.size <= MAX_SIZE_FOR_PYTHON
    is_every_byte = dtype == np.uint8 and (low == 0).all() and (high == 255).all()

    def is_inside(observation: Any) -> bool:
        if shape == () and type(observation) in (bool, int, float):  # which have no dtype
            observation = convert(observation, space)
        if (
            not hasattr(observation, "dtype")
            or observation.shape != shape
            or observation.dtype != dtype
        ):
            raise InvalidEnvOutput(
                f"its {name} is {describe_value(observation)}, not {dtype} {shape}"
            )
        if is_every_byte:
            return True
        if is_small:
            numbers = observation.ravel().tolist()
            if all(map(le, lows, numbers)) and all(map(le, numbers, highs)):
                return True
        elif ((low <= observation) & (observation <= high)).all():
            return True
        if not (np.abs(observation) <= largest).all():
            raise InvalidEnvOutput(f"its {name} {describe_value(observation)} is not finite")
        return False

    return is_inside


def largest_number(dtype: np.dtype[Any]) -> float:
    """Return the largest number of a dtype that is finite in a policy, too."""
    if dtype.kind == "f":
        return min(MAX_FLOAT32, float(np.finfo(str(dtype)).max))
    return MAX_FLOAT32
