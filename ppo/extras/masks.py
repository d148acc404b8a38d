"""Action masks that are not in infos: put there."""

import math
from typing import Any

from gymnasium import Env, Wrapper
from gymnasium.spaces import Dict

from ppo.envs.spaces import ACTION_MASK, leaves, num_choices


class MaskInInfo(Wrapper):
    """Put masks into infos: those that env.action_masks() returns (SB3-Contrib), or a part of
    observations (PettingZoo, RLlib), which the space is then without."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.is_inside = holds_mask(env)
        if self.is_inside:
            self.observation_space = without_mask(env.observation_space)

    def reset(self, **options: Any) -> Any:
        observation, info = self.env.reset(**options)
        return observation, {ACTION_MASK: self._mask(observation), **info}

    def step(self, action: Any) -> Any:
        observation, *others, info = self.env.step(action)
        return observation, *others, {ACTION_MASK: self._mask(observation), **info}

    def _mask(self, observation: Any) -> Any:
        if self.is_inside:
            return observation[ACTION_MASK]
        return self.env.get_wrapper_attr("action_masks")()


def adapt(env: Env) -> Env:
    """Return an environment whose masks, if it has any, are in its infos."""
    has_choices = num_choices(env.action_space).any()
    has_method = has_choices and env.has_wrapper_attr("action_masks")
    return MaskInInfo(env) if has_method or holds_mask(env) else env


def holds_mask(env: Any) -> bool:
    """Return whether a part action_mask, next to others, has a number for each choice."""
    observes = env.observation_space
    keys = {*observes} if isinstance(observes, Dict) else set()
    if ACTION_MASK not in keys or len(keys) == 1:
        return False
    sizes = [math.prod(leaf.shape or (0,)) for _, leaf in leaves(observes[ACTION_MASK])]
    return sum(sizes) == num_choices(env.action_space).sum()


def without_mask(value: Any) -> Any:
    """Return a Dict space or an observation of it without the mask, which is beside others."""
    if isinstance(value, Dict):
        return Dict({key: part for key, part in value.items() if key != ACTION_MASK})
    return {key: part for key, part in value.items() if key != ACTION_MASK}
