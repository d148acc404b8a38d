"""Step some of a run's environments and write what they return to rows of the shared rollout."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from ppo.envs.checks import CheckData, Info, ResetResult
from ppo.envs.episodes import WHOLE_EPISODE, OpenEpisode, layers, restore_emulator, save_emulator
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter


class Episode(NamedTuple):
    """An episode that ended with this step of the rollout."""

    step: int
    environment: int
    episode_return: float
    episode_length: int


class LastObservation(NamedTuple):
    """The last observation of an episode truncated at this step, with its recurrent state."""

    step: int
    environment: int
    observation: np.ndarray
    state: np.ndarray


class RolloutInfo(NamedTuple):
    """The results of a rollout beside its tensors; environments by their number in this rank.

    reset_envs: those that were reset before the rollout; num_outside: how many observations were
    outside of the space; emulators: their states at the end of the rollout."""

    episodes: list[Episode]
    last_observations: list[LastObservation]
    reset_envs: list[int]
    num_outside: dict[int, int]
    emulators: dict[int, bytes | None]


def called_env(call: int) -> int:
    """Return the environment of a heartbeat's call: i for a step (i) or a reset (~i)."""
    return max(call, ~call)


@dataclass(eq=False)
class EnvironmentSlice:
    """Environments that are stepped in one process, each with its column of the rollouts.

    rollouts: these columns (T, n) of the rollouts that are filled in turn; episode_counts: (n,),
    how many episodes each environment has begun; env_ids: their numbers in the whole run, on which
    their randomness depends; env_indices: their numbers in this rank; heartbeat: set at every call
    of an environment to the number of calls so far and the call, i for a step, ~i for a reset."""

    config: Any
    make_env: Callable[[], Any]
    rollouts: Sequence[Any]
    _: KW_ONLY
    episode_counts: np.ndarray
    env_ids: Sequence[int]
    env_indices: Sequence[int]
    heartbeat: Any

    def __post_init__(self) -> None:
        self.rollout = self.rollouts[0]
        self.row = len(self.rollout.actions)  # whose actions are carried out; at first none
        self.has_masks = self.rollout.action_masks.size > 0
        self.num_calls = 0
        self.reset_envs: list[int] | None = None  # before this rollout; None: all are to be reset
        self.envs: list[Any] = []
        for i in range(len(self.env_indices)):
            self._beat(~i)
            self.envs.append(self.make_env())
        space = self.envs[0].action_space
        self.to_actions = action_converter(space, self.config.squash_actions)
        self.to_mask = mask_converter(space)

    def restore(self, episodes: Sequence[OpenEpisode]) -> list[int]:
        """Restore an open episode in each environment; return those that were reset instead.

        An environment is reset if it does not show what the last row of the rollout shows."""
        self.reset_envs = []
        for i, episode in enumerate(episodes):
            if not self._resume(i, episode):
                self.reset_envs.append(self.env_indices[i])
                self._write_observation(-1, i, *self._start_episode(-1, i))
        return self.reset_envs

    def begin(self, iteration: int) -> None:
        """Begin the next rollout with the last row of the one before, the first with resets."""
        before = self.rollout
        self.rollout = self.rollouts[iteration % len(self.rollouts)]
        self.row = len(self.rollout.actions)
        for name in ("observations", "action_masks", "states"):
            vars(self.rollout)[name][0] = vars(before)[name][-1]
        self.rollout.terminations[:] = False
        self.rollout.truncations[:] = False
        if self.reset_envs is None:
            self.reset_envs = list(self.env_indices)
            for i in range(len(self.envs)):
                self._write_observation(0, i, *self._start_episode(0, i))
        self.info = RolloutInfo([], [], self.reset_envs, {}, {})
        self.reset_envs = []

    def step(self, t: int, members: range) -> None:
        """Carry out the actions of row t in some environments; write rewards, ends, row t + 1."""
        self.row = t
        rewards = self.rollout.rewards[t]
        observations = self.rollout.observations[t + 1]
        actions = self.to_actions(self.rollout.actions[t, members.start : members.stop])
        envs = self.envs
        for i, action in zip(members, actions, strict=True):
            self._beat(i)
            observation, rewards[i], terminated, truncated, info = envs[i].step(action)
            if terminated or truncated:
                observation, info = self._end_episode(t, i, observation, terminated, info)
            observations[i] = observation
            if info or self.has_masks:
                self._write_mask(t + 1, i, info)

    def end(self) -> RolloutInfo:
        """End the rollout."""
        info = self.info
        for index, env in zip(self.env_indices, self.envs, strict=True):
            info.emulators[index] = save_emulator(env)
            for layer in layers(env):
                if isinstance(layer, CheckData):
                    info.num_outside[index] = layer.num_outside
                    layer.num_outside = 0
        return info

    def actions_are_finite(self) -> bool:
        """Return whether the actions that are being carried out are."""
        return bool(np.isfinite(self.rollout.actions[self.row : self.row + 1]).all())

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _write_observation(self, row: int, i: int, observation: Any, info: Info) -> None:
        self.rollout.observations[row, i] = observation
        self._write_mask(row, i, info)

    def _write_mask(self, row: int, i: int, info: Info) -> None:
        if self.has_masks:
            self.rollout.action_masks[row, i] = self.to_mask(info.get(ACTION_MASK))
        elif info.get(ACTION_MASK) is not None:
            raise ValueError("its first reset had no action_mask, or its actions are a Box")

    def _end_episode(
        self, t: int, i: int, observation: Any, terminated: bool, info: Info
    ) -> ResetResult:
        """Record the end of environment i's episode and start the next one."""
        rollout = self.rollout
        index = self.env_indices[i]
        if terminated:
            rollout.terminations[t, i] = True
        else:
            rollout.truncations[t, i] = True
            state = rollout.states[t + 1, i].copy()
            last = LastObservation(t, index, np.array(observation), state)
            self.info.last_observations.append(last)
        if WHOLE_EPISODE in info:  # otherwise the episode ended for the learner only
            self.info.episodes.append(Episode(t, index, *info[WHOLE_EPISODE]))
        return self._start_episode(t + 1, i)

    def _start_episode(self, row: int, i: int) -> ResetResult:
        """Start environment i's next episode, with a recurrent state of zeros."""
        self.episode_counts[i] += 1
        self.rollout.states[row, i] = 0
        return self._reset(i, int(self.episode_counts[i]) - 1)

    def _reset(self, i: int, episode: int) -> ResetResult:
        """Reset environment i with a seed that depends on its id and the episode's number only."""
        self._beat(~i)
        seed = integer_seed(self.config.seed, Stream.EPISODE, self.env_ids[i], episode)
        result: ResetResult = self.envs[i].reset(seed=seed)
        return result

    def _resume(self, i: int, episode: OpenEpisode) -> bool:
        """Replay an open episode in environment i; return whether it shows the same again."""
        last_seen = self.rollout.observations[-1, i]
        try:
            if episode.emulator is not None:
                restore_emulator(self.envs[i], episode.emulator, last_seen)
                return True
            if episode.actions is None:
                return False
            observation, _ = self._reset(i, episode.number)
            for action in self.to_actions(episode.actions):
                self._beat(i)
                observation, _, terminated, truncated, _ = self.envs[i].step(action)
                if terminated or truncated:
                    return False
        except Exception:  # whatever it is, a new episode avoids it
            return False
        return np.array_equal(observation, last_seen)

    def _beat(self, call: int) -> None:
        """Tell the trainer of a call of environment i, a step (i) or a reset (~i)."""
        self.num_calls += 1
        self.heartbeat[0] = self.num_calls
        self.heartbeat[1] = call
