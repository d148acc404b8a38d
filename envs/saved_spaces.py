"""Spaces as JSON values, by which a saved policy is loaded without making its environment."""

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from ppo.envs.forms import SINGLE
from ppo.envs.make import check_spaces, preprocess
from ppo.envs.probe import Spaces
from ppo.envs.spaces import MAX_SIZE, holds_numbers
from ppo.extensions import names_of

if TYPE_CHECKING:
    from ppo.config.config import Config

MAX_PIXELS = 2**26  # that a file may claim, of images, which are resized
LEFT_OUT = "left out"  # the kind of a leaf that no policy reads, such as Text


class _OnlySpaces(Env):
    """An environment of which nothing is known but its spaces."""

    def __init__(self, observations: Space[Any], actions: Space[Any]) -> None:
        self.observation_space = observations
        self.action_space = actions


def save_spaces(spaces: Spaces) -> dict[str, Any]:
    """Return what read_spaces needs, as JSON values."""
    return {
        "shown": _save(spaces.shown),
        "actions": _save(spaces.actions),
        "has_masks": spaces.has_masks,
        "form": spaces.form,
        "team_size": spaces.team_size,
        **({"wrappers": [*spaces.wrappers]} if spaces.wrappers else {}),
    }


def read_spaces(saved: Any, config: "Config") -> Spaces:
    """Return the Spaces of a saved run, whose observations are preprocessed as config says.

    saved: as save_spaces returns it, from an untrusted file: sizes are checked
    before memory is taken. Raises ValueError if it is missing or damaged, or if no policy can use
    it."""
    if saved is None:
        raise ValueError("it has no spaces, as files of development versions have none")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the precision of bounds
            shown = _read(saved["shown"])
            actions = _read(saved["actions"])
            env: Any = _OnlySpaces(shown, actions)
            check_spaces(config, env)
            observations: Any = preprocess(config, env).observation_space
        _check_size(saved["team_size"])
        return Spaces(
            observations,
            actions,
            saved["has_masks"] is True,
            form=saved["form"] if saved["form"] in names_of("forms") else SINGLE,
            team_size=max(1, saved["team_size"]),
            shown=shown,
            wrappers=tuple(text for text in config.wrapper if text in saved.get("wrappers", ())),
        )
    except ValueError:
        raise
    except Exception as error:  # whatever gymnasium asserts of spaces, and JSON of another kind
        raise ValueError(f"its spaces are damaged: {error}") from error


def _save(space: Any) -> dict[str, Any]:
    """Return a space as JSON values."""
    if isinstance(space, Dict):
        return {"kind": "Dict", "parts": [[key, _save(x)] for key, x in space.spaces.items()]}
    if isinstance(space, Tuple):
        return {"kind": "Tuple", "parts": [_save(x) for x in space]}
    if not holds_numbers(space):
        return {"kind": LEFT_OUT}
    if isinstance(space, Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, MultiDiscrete):
        lists = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {"kind": "MultiDiscrete", "dtype": space.dtype.name, **lists}
    if isinstance(space, MultiBinary):
        is_flat = isinstance(space.n, int)  # spaces that differ in this are not equal
        return {"kind": "MultiBinary", "n": space.n if is_flat else [*space.shape]}
    bounds = {"low": _shortest(space.low), "high": _shortest(space.high)}
    return {"kind": "Box", "shape": [*space.shape], "dtype": space.dtype.name, **bounds}


def _shortest(bounds: np.ndarray) -> Any:
    """Return the bounds of a Box as lists, or one number if all are equal."""
    first = bounds.flat[0]
    return first.item() if (bounds == first).all() else bounds.tolist()


def _read(saved: Any) -> Any:
    """Return a space of _save. Raises ValueError for one that is too large, and whatever the
    constructors of spaces raise."""
    kind = saved["kind"]
    if kind == "Dict":
        return Dict([(key, _read(part)) for key, part in saved["parts"]])  # keeps their order
    if kind == "Tuple":
        return Tuple([_read(part) for part in saved["parts"]])
    if kind == "Discrete":
        _check_size(saved["n"])
        return Discrete(saved["n"], start=saved["start"])
    if kind == "MultiDiscrete":
        _check_size(int(np.max(saved["nvec"])))
        return MultiDiscrete(saved["nvec"], _number_type(saved["dtype"]), start=saved["start"])
    if kind == "MultiBinary":
        _check_size(*np.atleast_1d(saved["n"]).tolist())
        return MultiBinary(saved["n"])
    if kind == "Box":
        dtype: Any = _number_type(saved["dtype"])
        _check_size(*saved["shape"], most=MAX_PIXELS if dtype == np.uint8 else MAX_SIZE)
        shape = tuple(saved["shape"])
        low, high = (np.broadcast_to(np.array(saved[x], dtype), shape) for x in ("low", "high"))
        return Box(low, high, dtype=dtype)
    if kind == LEFT_OUT:
        return Text(1)
    raise ValueError(f"its spaces have one of kind {kind}, which is unknown")


def _check_size(*sizes: int, most: int = MAX_SIZE) -> None:
    """Raise ValueError unless sizes are whole numbers of 0 or more, with a product that is not
    greater than most."""
    if not all(type(size) is int and size >= 0 for size in sizes) or math.prod(sizes) > most:
        raise ValueError(f"its spaces have one of size {sizes}, more than is read from a file")


def _number_type(name: str) -> np.dtype[Any]:
    """Return the dtype of numbers that a name means. Raises ValueError for another."""
    dtype = np.dtype(name)
    if dtype.kind not in "biuf":
        raise ValueError(f"its spaces have one of {name}, which are no numbers")
    return dtype
