"""Highlights: the best, median and worst episodes, saved in a few kilobytes for later replay."""

import base64
import json
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ppo.callbacks.base import Callback
from ppo.errors import ConfigError
from ppo.run.reader import EPISODES, Form, misfit
from ppo.system.files import read_json_lines

NUM_CHOSEN = 3
MAX_ACTION_BYTES = 1 << 30  # of an episode
DTYPES = ("float32", "float64", "int64")  # of actions
COUNTS = ("step", "episode_length", "environment", "number")
EPISODE: Form = {
    "kind": str,
    "episode_return": float,
    **dict.fromkeys(COUNTS, int),
    "actions": str,
    "shape": [int],
    "dtype": str,
    "attributes": (dict, list, None),
}
Note = dict[str, Any]  # an episode's entry in episodes.jsonl


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
        """Append the best, the median and the worst episode to episodes.jsonl, one line each."""
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


def find_episode(folder: Path, kind: str) -> Note:
    """Return the best or worst episode of a run, or its last median one.

    kind: "best", "median" or "worst". The result has the fields of a PlayedEpisode, such as actions
    (L, D), its kind, and the step of its checkpoint. Raises ConfigError if there is none, or if its
    line is damaged.
    """
    sign = {"best": 1, "median": 0, "worst": -1}[kind]
    path = folder / EPISODES
    best: Note | None = None
    try:
        for note in read_json_lines(path):
            if note.get("kind") == kind:
                if wrong := misfit(note, EPISODE):
                    raise ValueError(f"{wrong} of an episode is not of its type")
                # The last one wins a tie.
                if not best or sign * (note["episode_return"] - best["episode_return"]) >= 0:
                    best = note
        if not best:
            raise ValueError("it notes none")
        for name in COUNTS:
            if not 0 <= best[name] < 2**53:
                raise ValueError(f"{name} of the episode is not a count")
        attributes = dict(best.get("attributes") or {})
        return {**best, "actions": _unpack(best), "attributes": attributes}
    except (ValueError, TypeError, zlib.error) as error:
        raise ConfigError(
            f"there is no {kind} episode in {path} ({error}): one is noted with each checkpoint, "
            "once an episode is over"
        ) from error


def _unpack(note: Note) -> np.ndarray:
    """Return the actions (L, D) of an episode. Raises ValueError or zlib.error if they do not have
    the shape that is noted, before that takes memory."""
    shape = note["shape"]
    if note["dtype"] not in DTYPES or len(shape) != 2 or min(shape) < 1:
        raise ValueError(f"its actions are {note['dtype']} {shape}")
    size = math.prod(shape) * np.dtype(note["dtype"]).itemsize
    if size > MAX_ACTION_BYTES:
        raise ValueError(f"its actions have more than {MAX_ACTION_BYTES:,} bytes")
    content = zlib.decompressobj().decompress(base64.b64decode(note["actions"]), size + 1)
    return np.frombuffer(content, note["dtype"]).reshape(shape)


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
