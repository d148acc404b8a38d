"""Highlights: the best, median and worst episodes, saved in a few kilobytes for later replay."""

import base64
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ppo.callbacks.base import Callback
from ppo.errors import ConfigError
from ppo.system.files import read_json_lines

EPISODES = "episodes.jsonl"
NUM_CHOSEN = 3
Note = dict[str, Any]  # an episode's entry in episodes.jsonl


class EpisodeHighlights(Callback):
    """Collect rank 0's episodes (ppo.envs.episodes.PlayedEpisode) since the last checkpoint.

    Whenever they have more than most_steps in total, all but the best, the median and the worst are
    dropped.
    """

    most_steps = 200_000
    num_steps = 0  # of all collected episodes

    def __init__(self) -> None:
        self.episodes: list[Any] = []

    def on_iteration(self, run) -> None:
        """Add the iteration's finished episodes."""
        played = run.rollout.played_episodes
        self.episodes += played
        self.num_steps += sum(len(episode.actions) for episode in played)
        if self.num_steps > self.most_steps and len(self.episodes) > NUM_CHOSEN:
            self.episodes = [*_choose(self.episodes).values()]
            self.num_steps = sum(len(episode.actions) for episode in self.episodes)

    def on_checkpoint(self, run) -> None:
        """Append the best, the median and the worst episode to episodes.jsonl, one line each."""
        for kind, episode in _choose(self.episodes).items():
            actions = episode.actions
            note = {
                "kind": kind,
                "step": run.step,
                **episode._asdict(),
                "shape": actions.shape,
                "dtype": str(actions.dtype),
                "actions": base64.b64encode(zlib.compress(actions.tobytes())).decode(),
            }
            run.folder.episodes.append(json.dumps(note) + "\n")
        self.episodes.clear()
        self.num_steps = 0


def find_episode(folder: Path, kind: str) -> Note:
    """Return the best or worst episode of a run, or its last median one.

    kind: "best", "median" or "worst". The result has the fields of a PlayedEpisode, such as actions
    (L, D), its kind, and the step of its checkpoint. Raises ConfigError if there is none.
    """
    sign = {"best": 1, "median": 0, "worst": -1}[kind]
    try:
        found = [note for note in read_json_lines(folder / EPISODES) if note["kind"] == kind]
        found.reverse()  # the last one wins a tie
        note = max(found, key=lambda note: sign * note["episode_return"])
        content = zlib.decompress(base64.b64decode(note["actions"]))
        actions = np.frombuffer(content, note["dtype"]).reshape(note["shape"])
        return {**note, "actions": actions}
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise ConfigError(
            f"there is no {kind} episode in {folder / EPISODES} ({error}): one is noted with each "
            "checkpoint, once an episode is over"
        ) from error


def video_path(folder: Path, episode: Note) -> Path:
    """Return the path of an episode's video, which may not exist yet.

    episode: as find_episode returns it.
    """
    return folder / "videos" / f"{episode['kind']}-{episode['step']}.mp4"


def _choose(episodes: Sequence[Any]) -> dict[str, Any]:
    """Return the best, median and worst episode by kind; {} if there are no episodes."""
    if not episodes:
        return {}
    ranked = sorted(episodes, key=lambda episode: episode.episode_return)
    return {"best": ranked[-1], "median": ranked[len(ranked) // 2], "worst": ranked[0]}
