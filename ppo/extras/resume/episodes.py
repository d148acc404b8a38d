"""Episodes that are open between two rollouts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ppo.envs.worker import RolloutInfo
from ppo.system.files import parse_json

MAX_REPLAY_STEPS = 100_000  # replaying a longer open episode would take too much time


class OpenEpisode(NamedTuple):
    """A whole episode that continues beyond a rollout.

    number: of the reset that began it; actions: (L, D) since then, to replay it, or None if they
    are unknown or too many; env_attributes: of the environment, as set_attributes has set them;
    emulator: its emulator's own state, if it has one."""

    number: int
    actions: ndarray | None
    env_attributes: Any = ()
    emulator: bytes | None = None


class OpenEpisodes:
    """Track the whole episode that is in progress in each environment. no_actions: (0, D)."""

    def __init__(self, num_envs: int, no_actions: ndarray) -> None:
        self.no_actions = no_actions
        self.open = [OpenEpisode(0, None)] * num_envs

    def update(
        self,
        actions: ndarray,
        dones: ndarray,
        info: RolloutInfo,
        episode_counts: ndarray,
        env_attributes: Any,
        emulators: Mapping[int, bytes | None],
    ) -> None:
        """Add a rollout.

        actions: (T, N, D); dones: (T, N), also of episodes that ended for the learner only; info:
        ppo.envs.worker.RolloutInfo; episode_counts: (N,), resets before the rollout's end;
        env_attributes: of episodes that began in the rollout; emulators: their states at its end.
        """
        ended = dones.cumsum(0)
        numbers = episode_counts - 1 - ended[-1]  # of the resets before the rollout
        self.restart(info.reset_envs, numbers, env_attributes)
        starts = [0] * len(self.open)
        for step, index, *_ in info.episodes:
            starts[index] = step + 1
            self.restart([index], numbers + ended[step], env_attributes)
        for index, episode in enumerate(self.open):
            known = episode.actions
            longer = None
            if known is not None and len(known) <= MAX_REPLAY_STEPS:
                longer = np.concatenate([known, actions[starts[index] :, index]])
            self.open[index] = episode._replace(actions=longer, emulator=emulators.get(index))

    def restart(
        self, env_indices: Sequence[int], numbers: ndarray, env_attributes: Any = ()
    ) -> None:
        """Begin new episodes in some environments, by resets with these numbers (N,)."""
        for index in env_indices:
            self.open[index] = OpenEpisode(int(numbers[index]), self.no_actions, env_attributes)


def pack_episodes(episodes: Sequence[OpenEpisode], no_actions: ndarray) -> dict[str, ndarray]:
    """Return open episodes as arrays by name. no_actions: (0, D)."""
    numbers, actions, env_attributes, emulators = zip(*episodes, strict=True)
    text = json.dumps(env_attributes).encode()
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
    if (arrays["numbers"] < 0).any():
        raise ValueError("an open episode has a negative number")
    env_attributes = parse_json(arrays["attributes"].tobytes())
    is_list = isinstance(env_attributes, list) and len(env_attributes) == len(lengths)
    if not is_list or not all(isinstance(x, dict) or x == [] for x in env_attributes):
        raise ValueError("its open episodes do not have an object of attributes each")
    episodes = []
    for index, (number, length) in enumerate(zip(arrays["numbers"], lengths, strict=True)):
        known = None
        if length >= 0:
            known = actions[:length]
            actions = actions[length:]
        state = arrays.get(f"emulator.{index}")
        emulator = None if state is None else state.tobytes()
        episodes.append(OpenEpisode(int(number), known, env_attributes[index], emulator))
    return episodes
