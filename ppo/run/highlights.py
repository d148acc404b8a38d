"""Episodes worth seeing: noted in a few kilobytes while training, to be played again when someone wants to see them."""

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ppo.errors import ConfigError

EPISODES = "episodes.jsonl"
KINDS = ("best", "median", "worst")


class EpisodeHighlights:
    """Whole episodes, as ppo.envs.episodes.PlayedEpisode, since the last checkpoint; once they have more than most_steps in
    all, only the best, the median and the worst, however long those are."""

    def __init__(self, most_steps: int = 200_000) -> None:
        self.most_steps = most_steps
        self.clear()

    def clear(self) -> None:
        self.episodes: list[Any] = []
        self.num_steps = 0

    def add(self, episodes: Sequence[Any]) -> None:
        self.episodes += episodes
        self.num_steps += sum(len(episode.actions) for episode in episodes)
        if self.num_steps > self.most_steps and len(self.episodes) > len(KINDS):
            self.episodes = _chosen(self.episodes)
            self.num_steps = sum(len(episode.actions) for episode in self.episodes)

    def to_json_lines(self, step: int) -> str:
        """Lines that note the best, the median and the worst, after a step of training."""
        chosen = zip(KINDS, _chosen(self.episodes), strict=True) if self.episodes else ()
        notes = (
            {"kind": kind, "step": step, **_pack(episode._asdict())} for kind, episode in chosen
        )
        return "".join(json.dumps(note) + "\n" for note in notes)


def find_episode(folder: Path, kind: str) -> dict[str, Any]:
    """The best or the worst episode of a run's notes, or the last one that was the median of its time, with its actions
    (L, D). Raises ConfigError if there is none."""
    try:
        found = [episode for episode in _episodes(folder / EPISODES) if episode["kind"] == kind]
        rank = {"best": 1, "median": 0, "worst": -1}[kind]
        return _unpack(max(reversed(found), key=lambda episode: rank * episode["episode_return"]))
    except (OSError, ValueError, KeyError, TypeError, zlib.error) as error:
        problem = f"there is no {kind} episode in {folder / EPISODES}"
        raise ConfigError(
            f"{problem} ({error}): one is noted with a checkpoint, once an episode is over"
        ) from error


def _chosen(played: Sequence[Any]) -> list[Any]:
    """An episode of each of KINDS."""
    ranked = sorted(played, key=lambda episode: episode.episode_return)
    return [ranked[-1], ranked[len(ranked) // 2], ranked[0]]


def _episodes(path: Path) -> Iterator[dict[str, Any]]:
    """What is noted in a file, but for lines that were torn."""
    for line in path.read_text().splitlines():
        with suppress(ValueError):
            yield json.loads(line)


def _pack(episode: dict[str, Any]) -> dict[str, Any]:
    actions = episode["actions"]
    packed = base64.b64encode(zlib.compress(actions.tobytes())).decode()
    return {**episode, "shape": actions.shape, "dtype": str(actions.dtype), "actions": packed}


def _unpack(episode: dict[str, Any]) -> dict[str, Any]:
    content = zlib.decompress(base64.b64decode(episode["actions"]))
    return {
        **episode,
        "actions": np.frombuffer(content, episode["dtype"]).reshape(episode["shape"]),
    }
