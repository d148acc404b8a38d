"""Restore open episodes in a worker's environments: by their actions, or an emulator's state."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Env
from numpy import ndarray

from ppo.envs.episodes import WHOLE_EPISODE, layers
from ppo.envs.heartbeat import STEP
from ppo.envs.inspection import take_faults
from ppo.envs.worker import WorkerPart
from ppo.extras.resume.episodes import OpenEpisode


class Replay(WorkerPart):
    """Save emulators at the end of each rollout, and restore open episodes."""

    def tell(self) -> dict[int, Any]:
        """Return the emulators' states, None of environments without one; nothing if there are
        wrappers of the user's, whose own state could not be saved."""
        worker = self.worker
        if worker.config.wrapper or not worker.can_replay:
            return {}
        pairs = zip(worker.env_indices, worker.envs, strict=True)
        return {index: save_emulator(env) for index, env in pairs}

    def restore(self, episodes: Sequence[OpenEpisode], env_attributes: Any) -> list[int]:
        """Restore the open episode of each environment. Return the indices of those reset instead,
        as their observation differs from the rollout's last row, or as there are no episodes."""
        worker = self.worker
        reset_envs = []
        worker.env_attributes = dict(env_attributes)
        for i, index in enumerate(worker.env_indices):
            is_restored = episodes and self._resume(i, episodes[i])
            take_faults(worker.envs[i])  # which were counted when the episode was played
            for _, read in worker.readers[i]:  # as were these
                read()
            if not is_restored:
                reset_envs.append(index)
                worker.start_episode(-1, i)
        worker.reset_envs = [*reset_envs]
        return reset_envs

    def _resume(self, i: int, episode: OpenEpisode) -> bool:
        """Replay an open episode in environment i; return whether it shows the same again."""
        worker = self.worker
        last_seen = worker.rollout.observations[-1, i]
        try:
            if episode.emulator is not None:
                restore_emulator(worker.envs[i], episode.emulator, last_seen)
                return True
            if episode.actions is None:
                return False
            observation, _ = worker.reset(i, episode.number, episode.env_attributes)
            for action in worker.to_actions(episode.actions):
                worker.calls.beat(STEP, i)
                observation, _, terminated, truncated, info = worker.envs[i].step(action)
                if WHOLE_EPISODE in info:
                    return False
                if terminated or truncated:  # for the learner only
                    observation, _ = worker.envs[i].reset()
        except Exception:  # whatever was raised, a new episode avoids it
            return False
        return np.array_equal(observation, last_seen)


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
