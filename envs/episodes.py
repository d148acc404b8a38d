"""Record whole episodes, and save and restore episodes that are still open."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env, Wrapper
from numpy import ndarray

from ppo.envs.errors import EnvironmentUnavailable
from ppo.system.files import MAX_NUMBER, parse_json

WHOLE_EPISODE = "whole_episode"  # in the info of an episode's last step: its (return, length)
MAX_REPLAY_STEPS = 100_000  # replaying a longer open episode would take too much time
NO_METRIC = re.compile(
    r"_|(action_mask|episode|final_info|final_observation|TimeLimit\.truncated"
    r'|lives|elapsed_step|(episode_)?frame_number)$|.*[,"\r\n\ud800-\udfff]'
)


class RecordEpisode(Wrapper):
    """Report the undiscounted return and the length of each whole episode in its last info.

    Wrappers that end episodes for the learner only, such as EndOnLifeLoss, go around this one."""

    SAVED = ("total", "length")

    def reset(self, **options):
        self.total = 0.0
        self.length = 0
        return self.env.reset(**options)

    def step(self, action):
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


def episode_metrics(info) -> dict[str, float]:
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


class OpenEpisode(NamedTuple):
    """A whole episode that continues beyond a rollout.

    number: of the reset that began it; actions: (L, D) since then, to replay it, or None if they
    are unknown or too many; task_params: of the environment, as apply_task_params has set them;
    emulator: its emulator's own state, if it has one."""

    number: int
    actions: ndarray | None
    task_params: Any = ()
    emulator: bytes | None = None


class OpenEpisodes:
    """Track the whole episode that is in progress in each environment. no_actions: (0, D)."""

    def __init__(self, num_envs: int, no_actions: ndarray) -> None:
        self.no_actions = no_actions
        self.open = [OpenEpisode(0, None)] * num_envs

    def update(self, actions: ndarray, dones: ndarray, info, episode_counts: ndarray) -> None:
        """Add a rollout.

        actions: (T, N, D); dones: (T, N), also of episodes that ended for the learner only; info:
        ppo.envs.worker.RolloutInfo; episode_counts: (N,), resets before the rollout's end."""
        ended = dones.cumsum(0)
        numbers = episode_counts - 1 - ended[-1]  # of the resets before the rollout
        self.restart(info.reset_envs, numbers, info.task_params)
        starts = [0] * len(self.open)
        for step, index, *_ in info.episodes:
            starts[index] = step + 1
            self.restart([index], numbers + ended[step], info.task_params)
        for index, episode in enumerate(self.open):
            known = episode.actions
            longer = None
            if known is not None and len(known) <= MAX_REPLAY_STEPS:
                longer = np.concatenate([known, actions[starts[index] :, index]])
            self.open[index] = episode._replace(actions=longer, emulator=info.emulators.get(index))

    def restart(self, env_indices: Sequence[int], numbers: ndarray, task_params=()) -> None:
        """Begin new episodes in some environments, by resets with these numbers (N,)."""
        for index in env_indices:
            self.open[index] = OpenEpisode(int(numbers[index]), self.no_actions, task_params)


def pack_episodes(episodes: Sequence[OpenEpisode], no_actions: ndarray) -> dict[str, ndarray]:
    """Return open episodes as arrays by name. no_actions: (0, D)."""
    numbers, actions, task_params, emulators = zip(*episodes, strict=True)
    text = json.dumps(task_params).encode()
    arrays = {
        "numbers": np.array(numbers),
        "lengths": np.array([-1 if known is None else len(known) for known in actions]),
        "actions": np.concatenate([no_actions, *(known for known in actions if known is not None)]),
        "attributes": np.frombuffer(text, np.uint8).copy(),
    }
    for index, emulator in enumerate(emulators):
        if emulator is not None:
            arrays[f"emulator.{index}"] = np.frombuffer(emulator, np.uint8).copy()
    return arrays


def unpack_episodes(arrays: Mapping[str, ndarray], no_actions: ndarray) -> list[OpenEpisode]:
    """Return the episodes that pack_episodes packed.

    Raises ValueError if the arrays do not fit together."""
    actions = arrays["actions"]
    lengths = arrays["lengths"]
    shape = (lengths.clip(0).sum(), *no_actions.shape[1:])
    if actions.shape != shape or (lengths > len(actions)).any():
        raise ValueError(f"there are {actions.shape} actions in {len(lengths)} open episodes")
    task_params = parse_json(arrays["attributes"].tobytes())
    is_list = isinstance(task_params, list) and len(task_params) == len(lengths)
    if not is_list or not all(isinstance(x, dict) or x == [] for x in task_params):
        raise ValueError("its open episodes do not have an object of attributes each")
    episodes = []
    for index, (number, length) in enumerate(zip(arrays["numbers"], lengths, strict=True)):
        known = None
        if length >= 0:
            known = actions[:length]
            actions = actions[length:]
        state = arrays.get(f"emulator.{index}")
        emulator = None if state is None else state.tobytes()
        episodes.append(OpenEpisode(int(number), known, task_params[index], emulator))
    return episodes


def save_emulator(env: Env) -> bytes | None:
    """Return the state of an emulator and the wrappers around it; None if env has no emulator."""
    *_, game = layers(env)
    if not hasattr(game, "save_emulator"):
        return None
    saved = [
        {name: getattr(layer, name) for name in getattr(layer, "SAVED", ())}
        for layer in layers(env)
    ]
    header = json.dumps([*saved, game.np_random.bit_generator.state])
    return b"\n".join([header.encode(), game.save_emulator()])


def restore_emulator(env: Env, state: bytes, observation: ndarray) -> None:
    """Restore what save_emulator returned, in an environment made in the same way.

    observation: the last one of the environment that was saved."""
    header, _, emulator = state.partition(b"\n")
    *saved, generator = json.loads(header)
    for layer, values in zip(layers(env), saved, strict=True):
        for name in getattr(layer, "SAVED", ()):  # no other names that a file may hold
            setattr(layer, name, values[name])
        if hasattr(layer, "restore"):
            layer.restore(observation)
    *_, game = layers(env)
    game.np_random.bit_generator.state = generator
    game.restore_emulator(emulator)


def apply_task_params(env: Env, task_params: Mapping[str, Any]) -> None:
    """Pass task_params to the set_training of an environment or of a wrapper, else set them by name
    on the environment itself, but no method. Raises EnvironmentUnavailable if it has no such
    attribute."""
    if not task_params:
        return
    for layer in layers(env):
        if hasattr(layer, "set_training"):
            layer.set_training(**task_params)
            return
    for name, value in task_params.items():
        if not hasattr(layer, name) or callable(getattr(layer, name)) or name.startswith("__"):
            raise EnvironmentUnavailable(
                f"set_env({name}={value}): the environment has neither set_training nor an "
                f"attribute {name}: define one"
            )
        setattr(layer, name, value)


def close_env(env) -> str:
    """Close an environment or a batch; return a description of what it raises, or "" if nothing."""
    try:
        env.close()
    except BaseException as error:  # KeyboardInterrupt, too: closing must not end anything
        return f"it raised {type(error).__name__} as it was closed: {error}"
    return ""


def layers(env) -> Iterator[Any]:
    """Yield an environment's wrappers from the outermost, then the environment itself."""
    while isinstance(env, Wrapper):
        yield env
        env = env.env
    yield env
