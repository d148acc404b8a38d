"""Whole episodes: their returns and lengths, custom metrics, attributes."""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from gymnasium import Wrapper

from ppo.errors import BadValue

WHOLE_EPISODE = "whole_episode"  # in the info of an episode's last step: its (return, length)
# Keys of gymnasium, EnvPool and the Atari emulator that are no metrics of an episode.
NO_METRICS = (
    f"action_mask episode final_info final_observation TimeLimit.truncated {WHOLE_EPISODE} "
    "lives elapsed_step env_id frame_number episode_frame_number"
).split()
Step = tuple[Any, float, bool, bool, dict[str, Any]]
Values = Mapping[str, Any]  # of an info, or attributes of an environment, by name


class Episode(NamedTuple):
    """A whole episode that ended at this step of a rollout. metrics: the environment's own."""

    step: int
    environment: int
    episode_return: float
    episode_length: int
    metrics: dict[str, float]


def five(results: Any) -> Step:
    """Return the five results of a step, the reward as a float. Raises BadValue for others."""
    try:
        observation, reward, terminated, truncated, info = results
    except (TypeError, ValueError) as error:
        raise BadValue(f"its step returned {results!r:.200}, not five results") from error
    try:
        return observation, float(reward), terminated, truncated, info
    except Exception as error:
        with suppress(Exception):  # an array of one number
            return observation, float(reward.item()), terminated, truncated, info
        raise BadValue(f"its reward {reward!r:.200} is not a number") from error


class RecordEpisode(Wrapper):
    """Report the undiscounted return and length of each whole episode in its last info. Wrappers
    that end episodes for the learner only, such as EndOnLifeLoss, go around this one."""

    def reset(self, **options: Any) -> Any:
        self.total = 0.0
        self.length = 0
        results = self.env.reset(**options)
        if not (isinstance(results, tuple) and len(results) == 2 and isinstance(results[1], dict)):
            raise BadValue(f"its reset returned {results!r:.200}, not (observation, info)")
        return results

    def step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = five(self.env.step(action))
        self.total += reward
        self.length += 1
        if terminated or truncated:
            info = {**info, WHOLE_EPISODE: (self.total, self.length)}
        return observation, reward, terminated, truncated, info


def episode_metrics(info: Values) -> dict[str, float]:
    """Return the finite numbers in the info of an episode's last step and in its "episode_metrics",
    by name; is_success as success_rate."""
    metrics = {}
    for key, value in {**info, **(info.get("episode_metrics") or {})}.items():
        if getattr(value, "size", None) == 1:
            value = value.item()
        is_name = isinstance(key, str) and key not in NO_METRICS and not key.startswith("_")
        if is_name and isinstance(value, (int, float)) and math.isfinite(value):
            metrics[key] = float(value)
    if "is_success" in metrics:
        metrics["success_rate"] = metrics.pop("is_success")
    return metrics


def set_attributes(env: Any, attributes: Values) -> None:
    """Pass attributes to the set_training method of an environment or of a wrapper; without one,
    set them by name on the environment. Raises ValueError if it has no attribute of that name."""
    if not attributes:
        return
    while isinstance(env, Wrapper) and not hasattr(env, "set_training"):
        env = env.env
    if hasattr(env, "set_training"):
        env.set_training(**attributes)
        return
    for name, value in attributes.items():
        if not hasattr(env, name) or callable(getattr(env, name)):
            raise ValueError(f"set_env({name}={value!r}): no attribute or set_training takes it")
        setattr(env, name, value)
