"""What exact resume does in a run."""

from collections.abc import Collection
from itertools import chain

from ppo.algorithm.rollout import Rollout
from ppo.components import Components
from ppo.envs.pool import WorkerPool
from ppo.extras.resume.episodes import OpenEpisodes, pack_episodes, unpack_episodes
from ppo.parts import Part
from ppo.system.state_dict import State

NAME = "open_episodes"  # of the part, and of what workers report


def make_parts(parts: Components) -> dict[str, Part]:
    """Return the part that every run has."""
    return {NAME: ExactResume(parts)}


class ExactResume(Part):
    """Keep the open episodes of a run, and restore them in its environments. Where actions do not
    lead to where an episode was, as in a vector environment, none is known."""

    any_length = ("actions", "attributes")

    def __init__(self, parts: Components) -> None:
        self.parts = parts
        self.episodes = OpenEpisodes(parts.num_envs, parts.rollout.actions[0, :0].copy())

    def on_rollout(self, rollout: Rollout) -> None:
        if self.parts.worker.can_replay:
            self.episodes.update(
                rollout.actions,
                rollout.dones,
                rollout.info,
                self.parts.buffers.episode_counts_at_rollout_end,
                self.parts.training_attributes,
                rollout.info.told[NAME],
            )

    def restore(self, workers: WorkerPool) -> Collection[int]:
        parts = self.parts
        if not parts.worker.can_replay:
            return ()
        env_attributes = parts.training_attributes
        replies = workers.call(NAME, "restore", self.episodes.open, env_attributes)
        reset_envs = sorted(chain(*replies))
        counts = parts.buffers.episode_counts
        parts.buffers.episode_counts_at_rollout_end[:] = counts
        self.episodes.restart(reset_envs, counts - 1, env_attributes)
        parts.normalize_reward.returns[reset_envs] = 0
        return {*range(parts.num_envs)} - {*reset_envs}

    def state_dict(self) -> State:
        """Return the open episodes of all processes."""
        everywhere = self.parts.peers.gather(self.episodes.open)
        return pack_episodes([*chain(*everywhere)], self.episodes.no_actions)

    def load_state_dict(self, state: State) -> None:
        """Load a state dict. Raises ValueError for open episodes that do not fit together."""
        if state:
            arrays = {name: value.numpy() for name, value in state.items()}
            ids = self.parts.env_ids
            episodes = unpack_episodes(arrays, self.episodes.no_actions)
            self.episodes.open = episodes[ids.start : ids.stop]
