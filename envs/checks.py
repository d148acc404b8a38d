"""What environments return, before anything is made of it."""

from collections.abc import Callable
from operator import le
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo.envs.errors import BadData

LARGEST = float(
    np.finfo(np.float32).max
)  # beyond it a number would become infinite where policies compute
FEW = 64  # numbers that Python compares faster than numpy


class CheckData(gymnasium.Wrapper):
    """Raises BadData for an observation of another shape, dtype or structure than the space's, or not finite; for a
    reward that is not one finite number; and for other than (observation, info) or the five results of a step. What is
    well formed but outside the space is counted in num_outside; is_strict: it is bad data too."""

    num_outside = 0

    def __init__(self, env: gymnasium.Env, is_strict: bool = False) -> None:
        super().__init__(env)
        self.is_strict = is_strict
        self.is_inside = checker(env.observation_space)

    def reset(self, **options: Any) -> Any:
        result: Any = self.env.reset(**options)
        if (
            not isinstance(result, (tuple, list))
            or len(result) != 2
            or not isinstance(result[1], dict)
        ):
            raise BadData(
                f"its reset returned {describe_value(result)}, which is not (observation, info)"
            )
        if not self.is_inside(result[0]):
            self._note_outside(result[0])
        return result

    def step(self, action: Any) -> Any:
        result: Any = self.env.step(action)
        if (
            not isinstance(result, (tuple, list))
            or len(result) != 5
            or not isinstance(result[4], dict)
        ):
            raise BadData(
                f"its step returned {describe_value(result)}, which is not five results of which the last is a dict"
            )
        if not self.is_inside(result[0]):
            self._note_outside(result[0])
        reward = result[1]
        number = reward.item() if getattr(reward, "shape", None) == () else reward
        if not (isinstance(number, (int, float)) and -LARGEST <= number <= LARGEST):
            raise BadData(f"its reward is {describe_value(reward)}, not one finite number")
        return result

    def _note_outside(self, observation: Any) -> None:
        self.num_outside += 1
        if self.is_strict:
            raise BadData(
                f"its observation {describe_value(observation)} is outside of {self.env.observation_space}"
            )


def checker(space: Any) -> Callable[[Any], bool]:
    """What tells whether an observation is inside of a space, and raises BadData if it is not even well formed."""
    if isinstance(space, spaces.Box):
        return _box_checker(space)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        kind = dict if isinstance(space, spaces.Dict) else tuple
        parts: Any = space.spaces if isinstance(space, spaces.Dict) else dict(enumerate(space))
        checkers = {key: checker(part) for key, part in parts.items()}

        def is_inside_all(observation: Any) -> bool:
            if not isinstance(observation, kind) or len(observation) != len(parts):
                raise BadData(
                    f"its observation is {describe_value(observation)}, not a {kind.__name__} of {len(parts)} parts"
                )
            try:
                are_inside = [
                    own(observation[key]) for key, own in checkers.items()
                ]  # all, for bad data in any
            except KeyError as error:
                raise BadData(
                    f"its observation lacks {error}: {describe_value(observation)}"
                ) from error
            return all(are_inside)

        return is_inside_all

    if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return space.contains

    def is_inside(observation: Any) -> bool:
        if np.shape(observation) != space.shape or np.asarray(observation).dtype.kind not in "iub":
            raise BadData(f"its observation is {describe_value(observation)}, not one of {space}")
        return space.contains(observation)

    return is_inside


def _box_checker(space: spaces.Box) -> Callable[[Any], bool]:
    """Of a Box: one pass where all is well, which nearly always it is."""
    shape, dtype = space.shape, space.dtype
    largest = min(LARGEST, float(np.finfo(str(dtype)).max)) if dtype.kind == "f" else LARGEST
    low, high = np.maximum(space.low, -largest), np.minimum(space.high, largest)
    is_full = (
        dtype == np.uint8 and (low == 0).all() and (high == 255).all()
    )  # nothing else is possible
    is_small = low.size <= FEW
    lows, highs = low.ravel().tolist(), high.ravel().tolist()

    def is_inside(observation: Any) -> bool:
        if shape == () and type(observation) in (bool, int, float):  # which have no dtype
            observation = np.asarray(observation, dtype)
        if (
            not hasattr(observation, "dtype")
            or observation.shape != shape
            or observation.dtype != dtype
        ):
            raise BadData(f"its observation is {describe_value(observation)}, not {dtype} {shape}")
        if is_full:
            return True
        if is_small:
            numbers = observation.ravel().tolist()
            if all(map(le, lows, numbers)) and all(map(le, numbers, highs)):
                return True
        elif ((low <= observation) & (observation <= high)).all():
            return True
        if not (np.abs(observation) <= largest).all():
            raise BadData(f"its observation {describe_value(observation)} is not finite")
        return False

    return is_inside


def describe_value(value: Any) -> str:
    """A value in a few words, with its shape and dtype where it has them."""
    kind = f"{value.dtype} {value.shape} " if isinstance(value, np.ndarray) else ""
    text = " ".join(
        repr(
            value.tolist() if isinstance(value, np.ndarray) and value.size <= FEW else value
        ).split()
    )
    return f"{kind}{text if len(text) <= 120 else text[:120] + '...'}"
