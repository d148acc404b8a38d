"""The callbacks that watch a run."""

import numpy as np

from ppo.callbacks.base import Callback, Run
from ppo.components import Components
from ppo.envs.spaces import clipping_bounds
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
