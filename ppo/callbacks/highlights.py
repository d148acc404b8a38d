"""Highlights: the best, median and worst episodes, saved in a few kilobytes for later replay."""

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any

from ppo.callbacks.base import Callback

NUM_CHOSEN = 3


class EpisodeHighlights(Callback):
    """Collect rank 0's episodes (ppo.envs.episodes.PlayedEpisode) since the last checkpoint.

    Whenever they have more than max_steps in total, all but the best, the median and the worst are
    dropped.
    """

    def __init__(self, max_steps: int = 200_000) -> None:
        self.max_steps = max_steps
        self.num_steps = 0  # of all collected episodes
        self.episodes: list[Any] = []

    def on_iteration(self, run) -> None:
        """Add the iteration's finished episodes."""
        played = run.rollout.played_episodes
        self.episodes += played
        self.num_steps += sum(len(episode.actions) for episode in played)
        if self.num_steps > self.max_steps and len(self.episodes) > NUM_CHOSEN:
            self.episodes = [*_choose(self.episodes).values()]
            self.num_steps = sum(len(episode.actions) for episode in self.episodes)

    def on_checkpoint(self, run) -> None:
        """Append the best, the median and the worst episode to episodes.jsonl, one line each, which
        ppo.tools.render reads."""
        for kind, episode in _choose(self.episodes).items():
            actions = episode.actions
            note = {
                "kind": kind,
                "step": run.step,
                "episode_return": episode.episode_return,
                "episode_length": episode.episode_length,
                "environment": episode.environment,
                "number": episode.number,
                "actions": base64.b64encode(zlib.compress(actions.tobytes())).decode(),
                "attributes": episode.task_params,
                "shape": actions.shape,
                "dtype": str(actions.dtype),
            }
            run.folder.episodes.append(json.dumps(note) + "\n")
        self.episodes.clear()
        self.num_steps = 0


def _choose(episodes: Sequence[Any]) -> dict[str, Any]:
    """Return the best, median and worst episode by kind; {} if there are no episodes."""
    if not episodes:
        return {}
    ranked = sorted(episodes, key=lambda episode: episode.episode_return)
    return {"best": ranked[-1], "median": ranked[len(ranked) // 2], "worst": ranked[0]}
