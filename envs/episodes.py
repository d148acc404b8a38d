"""Record whole episodes, and change what environments are like in the next ones."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, SupportsFloat

from gymnasium import Env, Wrapper

from ppo.envs.errors import EnvironmentUnavailable
from ppo.system.files import MAX_NUMBER

Info = dict[str, Any]
StepResult = tuple[Any, SupportsFloat, bool, bool, Info]  # as gymnasium has it
WHOLE_EPISODE = "whole_episode"  # in the info of an episode's last step: its (return, length)
NO_METRIC = re.compile(
    r"_|(action_mask|episode|final_info|final_observation|TimeLimit\.truncated"
    r'|lives|elapsed_step|(episode_)?frame_number)$|.*[,"\r\n\ud800-\udfff]'
)


class RecordEpisode(Wrapper):
    """Report the undiscounted return and the length of each whole episode in its last info.

    Wrappers that end episodes for the learner only, such as EndOnLifeLoss, go around this one."""

    SAVED = ("total", "length")

    def reset(self, **options: Any) -> tuple[Any, Info]:
        self.total = 0.0
        self.length = 0
        return self.env.reset(**options)

    def step(self, action: Any) -> StepResult:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.total += float(reward)
        self.length += 1
        if terminated or truncated:
            info = {**info, WHOLE_EPISODE: (self.total, self.length)}
        return observation, reward, terminated, truncated, info


@lru_cache(1_000)  # bounded: an environment may invent new keys forever
def names_metric(key: str) -> bool:
    """Return whether a key of an info may name a metric.

    Excluded are keys that begin with _, those of gymnasium and Atari, and those unfit for a CSV."""
    return not NO_METRIC.match(key)


def episode_metrics(info: Info) -> dict[str, float]:
    """Return the numbers and booleans in the info of an episode's last step, by name.

    This includes info["episode_metrics"] and arrays of one element, but no values that are not
    finite. is_success is also reported as success_rate."""
    metrics = {}
    for key, value in {**info, **(info.get("episode_metrics") or {})}.items():
        if getattr(value, "size", None) == 1:
            value = value.item()
        is_finite = isinstance(value, (int, float)) and abs(value) < MAX_NUMBER
        if is_finite and names_metric(str(key)):
            metrics[str(key)] = float(value)
    if "is_success" in metrics:
        metrics["success_rate"] = metrics["is_success"]
    return metrics


def set_attributes(env: Env, attributes: Mapping[str, Any]) -> None:
    """Pass attributes to the set_training of an environment or of a wrapper, else set them by name
    on the environment itself, but no method. Raises EnvironmentUnavailable if it has no such
    attribute."""
    if not attributes:
        return
    for layer in layers(env):
        if hasattr(layer, "set_training"):
            layer.set_training(**attributes)
            return
    for name, value in attributes.items():
        if not hasattr(layer, name) or callable(getattr(layer, name)) or name.startswith("__"):
            raise EnvironmentUnavailable(
                f"set_env({name}={value}): the environment has neither set_training nor an "
                f"attribute {name}: define one"
            )
        setattr(layer, name, value)


def close_env(env: Any) -> str:
    """Close an environment or a batch; return a description of what it raises, or "" if nothing."""
    try:
        env.close()
    except BaseException as error:  # KeyboardInterrupt, too: closing must not end anything
        return f"it raised {type(error).__name__} as it was closed: {error}"
    return ""


def layers(env: Any) -> Iterator[Any]:
    """Yield an environment's wrappers from the outermost, then the environment itself."""
    while isinstance(env, Wrapper):
        yield env
        env = env.env
    yield env
