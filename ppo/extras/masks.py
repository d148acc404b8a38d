"""Action masks that are not in infos: put there."""

import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from gymnasium import Env, Wrapper
from gymnasium.spaces import Dict

from ppo.envs.spaces import ACTION_MASK, leaves, num_choices


class MaskInInfo(Wrapper):
    """Put into infos the masks that a function returns, given the observation."""

    def __init__(self, env: Env, read: Callable[[Any], Any]) -> None:
        super().__init__(env)
        self.read = read

    def reset(self, **options: Any) -> Any:
        observation, info = self.env.reset(**options)
        return observation, {ACTION_MASK: self.read(observation), **info}

    def step(self, action: Any) -> Any:
        observation, *others, info = self.env.step(action)
        return observation, *others, {ACTION_MASK: self.read(observation), **info}


def adapt(env: Env) -> Env:
    """Put masks into infos: those of action_masks() (SB3-Contrib), or of a part of observations
    next to others (PettingZoo, RLlib), which their space is then without."""
    observes = env.observation_space
    parts = observes.spaces if isinstance(observes, Dict) else {}
    size = num_choices(env.action_space).sum()
    mask = parts.get(ACTION_MASK, Dict())
    shapes = [leaf.shape or (0,) for _, leaf in leaves(mask)]
    sizes = map(math.prod, shapes)
    if len(parts) > 1 and 0 < sum(sizes) == size:
        env = MaskInInfo(env, itemgetter(ACTION_MASK))
        env.observation_space = without_mask(observes)
    elif size and env.has_wrapper_attr("action_masks"):
        find = env.get_wrapper_attr("action_masks")
        env = MaskInInfo(env, lambda _: find())
    return env


def without_mask(value: Any) -> Any:
    """Return a Dict space or an observation of it without the mask, which is beside others."""
    others = {key: part for key, part in value.items() if key != ACTION_MASK}
    return Dict(others) if isinstance(value, Dict) else others
