"""The callbacks that watch a run."""

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.callbacks.base import Callback, Run
from ppo.components import Components
from ppo.envs.spaces import leaves, scale_of
from ppo.extras.watch.doctor import Doctor
from ppo.extras.watch.flags import VideoFlags
from ppo.extras.watch.stopping import make_stopping
from ppo.guard import guard


def make_callbacks(parts: Components) -> list[Callback]:
    """Return all of them, in the order in which they are called. Raises as make_stopping does."""
    config, spaces, head = parts.config, parts.spaces, parts.model.policy_head
    bounds = clipping_bounds(spaces.actions, config.squash_actions, config.scale_actions)
    doctor = Doctor(0 if head.action_dtype is np.int64 else head.action_size, bounds)
    return [Videos(), doctor, *make_stopping(config, spaces.reward_threshold)]


def clipping_bounds(space: Space[Any], squash: bool = False, scale: bool = False) -> ndarray:
    """Return the bounds (2, D) to which action_converter clips the columns of a policy's actions:
    infinite for choices, squashed numbers, and those that have one value only."""
    columns = []
    for _, leaf in leaves(space):
        bounds = np.stack([np.full(leaf.shape, -np.inf), np.full(leaf.shape, np.inf)])
        if isinstance(leaf, Box) and not squash:
            shift, factor = scale_of(leaf, squash, scale) or (0, 1)
            found = (np.stack([leaf.low, leaf.high]) - shift) / factor
            bounds = np.where(leaf.low < leaf.high, found, bounds)
        columns.append(bounds.reshape(2, -1))
    return np.concatenate(columns, axis=1)


class Videos(Callback):
    """Film an episode of the policy every --video_every iterations; a failure ends nothing."""

    def on_iteration(self, run: Run) -> None:
        if run.is_due(VideoFlags.of(run.config).video_every):
            path = run.folder.path / "videos" / f"{run.step}.mp4"
            try:
                path.unlink(missing_ok=True)  # made before a run was resumed from an earlier state
                policy = run.policy()
                guard().call("the video", policy.config, policy.evaluate, 1, video=path)
            except Exception as error:
                run.folder.event(
                    "video_failed", f"{path} cannot be made: {error}; training continues"
                )
