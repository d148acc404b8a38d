"""Make a video of an episode of a run's training."""

import base64
import math
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ppo.commands.shared import VIDEOS, PolicyCommand, folder_of
from ppo.config.flags import flag
from ppo.envs.episodes import MAX_REPLAY_STEPS, WHOLE_EPISODE
from ppo.envs.errors import EnvironmentUnavailable, WorkerError
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.spaces import check_columns
from ppo.envs.video import filmed
from ppo.errors import CheckpointError, ConfigError, ReplayMismatch
from ppo.policy.policy import Policy
from ppo.run.checkpoint import find_checkpoint
from ppo.run.reader import EPISODES, Form, misfit
from ppo.system.files import new_file, read_json_lines

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


class Render(PolicyCommand):
    """Replay an episode by its seed and actions, and make a video of it."""

    episode: Literal["best", "median", "worst"] = flag(
        "best", "Which episode to replay, by its return."
    )
    video: str | None = flag(
        None, "New .mp4 or .gif file; none: a file in the run's videos/, which is reused."
    )

    def __call__(self) -> None:
        """Make the video, unless the run has it already, and print its path.

        Raises ConfigError if there is no such episode or the video cannot be written,
        CheckpointError if it is not of the run's environment, ReplayMismatch if the replay has
        another return or length, WorkerError if the environment raises or hangs."""
        path = find_checkpoint(self.run)
        folder = folder_of(path)
        episode = find_episode(folder, self.episode)
        video = video_path(folder, episode)
        if self.video or not video.is_file():
            video = new_file("--video=", self.video or video, VIDEOS)
            policy = self.load(path)
            try:
                policy.isolated("the video", replay, policy, episode, video)
            except (CheckpointError, EnvironmentUnavailable, WorkerError) as error:
                if isinstance(error, WorkerError) and not episode["attributes"]:
                    raise  # nothing in the file is to blame
                raise CheckpointError(
                    f"the {self.episode} episode of {folder / EPISODES} cannot be replayed "
                    f"({error}): give another by --episode"
                ) from error
        print(
            f"{self.episode} episode: return {episode['episode_return']:.6g} in "
            f"{episode['episode_length']} steps, until step {episode['step']:,} of training\n"
            f"video: {video}"
        )


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


def replay(policy: Policy, episode: Note, video: Path | None = None) -> None:
    """Replay an episode of training by its seed and actions.

    episode: as find_episode returns it; video: a new file, .mp4 or .gif.
    Raises CheckpointError if the episode is not of this environment, ReplayMismatch if return or
    length differ from training; then no video is written."""
    actions = episode["actions"]
    try:
        check_columns(policy.spaces.actions, actions)
        if len(actions) > MAX_REPLAY_STEPS + 2 * policy.config.num_steps:
            raise ValueError(f"it has {len(actions):,} steps")
    except ValueError as error:
        raise CheckpointError(f"the episode is not of this environment: {error}") from error
    number = episode["number"]
    is_over = True
    policy = replace(policy, env_attributes=dict(episode.get("attributes", ())))
    envs = [policy.make_env("rgb_array" if video else None, episode["environment"])]
    with filmed(envs, video) as (env,):
        for action in policy.to_actions(actions):
            if is_over:  # the episode begins, or a life was lost and the game continues
                place = (Stream.EPISODE, episode["environment"], number)
                env.reset(seed=integer_seed(policy.config.seed, *place))
                number += 1
            _, _, terminated, truncated, info = env.step(action)
            is_over = terminated or truncated
        found = list(info.get(WHOLE_EPISODE, ()))
        expected = [episode["episode_return"], episode["episode_length"]]
        if found != expected:
            raise ReplayMismatch(
                f"{policy.config.env_name} does not repeat itself: the episode came to "
                f"(return, length) = {expected}, its replay to {found or 'no end'}"
            )
