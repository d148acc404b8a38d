"""Evaluate a policy by whole episodes, and film them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env
from numpy import ndarray

from ppo.envs.episodes import Episode
from ppo.envs.worker import Worker, table_shapes
from ppo.errors import ConfigError, reason

if TYPE_CHECKING:
    from ppo.policy import Policy

MAX_STEPS = 30_000  # of an episode, where nothing else limits it


@dataclass(frozen=True)
class Evaluation:
    """What whole episodes came to; mean and std are None without episodes. env: means of the
    environment's own metrics, by name."""

    mean: float | None = None
    std: float | None = None
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    env: dict[str, float] = field(default_factory=dict)

    @property
    def episodes(self) -> int:
        return len(self.returns)


def summarize(episodes: Sequence[Episode]) -> Evaluation:
    """Return what episodes came to."""
    if not episodes:
        return Evaluation()
    returns = [x.episode_return for x in episodes]
    names = {name: None for x in episodes for name in x.metrics}
    return Evaluation(
        mean=float(np.mean(returns)),
        std=float(np.std(returns)),
        returns=returns,
        lengths=[x.episode_length for x in episodes],
        env={name: fmean(x.metrics[name] for x in episodes if name in x.metrics) for name in names},
    )


def interval(returns: Sequence[float]) -> float:
    """Return half of the 95 % confidence interval of a mean, by the normal distribution."""
    if len(returns) < 2:
        return 0.0
    return 1.96 * float(np.std(returns, ddof=1)) / math.sqrt(len(returns))


class Play(Worker):
    """An evaluation in progress: a worker with tables of one step and seeds of its own, one for
    each episode. An environment that is free takes the next one."""

    def __init__(
        self,
        policy: "Policy",
        seeds: Sequence[int],
        *,
        num_envs: int,
        is_sampled: bool,
        **options: Any,
    ) -> None:
        spaces = policy.spaces
        shapes = table_shapes(spaces, 1, num_envs, state_size=policy.actor.state_size)
        arrays = {name: np.zeros(*about) for name, about in shapes.items()}
        arrays["counts"] = np.zeros(num_envs, np.int64)
        self.policy = policy
        self.seeds = seeds
        self.is_sampled = is_sampled
        self.generator = np.random.default_rng(seeds[0])
        self.next_episode = 0
        self.playing = [-1] * num_envs  # the number of each column's episode
        self.found: dict[int, Episode] = {}
        heartbeat = np.zeros(1, np.int64)
        super().__init__(spaces, arrays, range(num_envs), heartbeat, limit=MAX_STEPS, **options)

    def next_seed(self, column: int, is_whole: bool) -> int:
        if is_whole:
            self.playing[column] = self.next_episode
            self.next_episode += 1
        number = self.playing[column]
        return self.seeds[number] if number < len(self.seeds) else number

    def play_step(self) -> bool:
        """Take a step in each environment; return whether episodes are left to play."""
        policy, tables = self.policy, self.tables
        self.begin(policy.env_attributes)
        rows = {name: tables[name][0] for name in policy.spaces.layout.tables}
        noise = policy.draw_noise(len(self.playing), self.generator) if self.is_sampled else None
        tables["states"][1] = tables["states"][0]
        masks = tables["action_masks"][0]
        tables["actions"][0] = policy.actor(
            policy.observe(rows), noise, mask=masks, states=tables["states"][1]
        )
        playing = [*self.playing]
        self.step(0)
        for episode in self.end().episodes:
            if playing[episode.environment] < len(self.seeds):
                self.found[playing[episode.environment]] = episode
        return len(self.found) < len(self.seeds)


class Film:
    """Write what an environment renders to a video."""

    def __init__(self, path: str | Path, env: Env) -> None:
        self.path = Path(path)
        self.env = env
        self.frames: list[ndarray] = []
        if self.path.suffix not in (".mp4", ".gif"):
            raise ConfigError(f"--video={path}: give a file that ends in .mp4 or .gif")
        if env.render_mode != "rgb_array":
            raise ConfigError(f"--video={path}: the environment does not render rgb_array")

    def add(self) -> None:
        """Add a frame of the present state."""
        frame: Any = self.env.render()
        self.frames.append(np.asarray(frame[-1] if isinstance(frame, list) else frame))

    def write(self) -> None:
        """Write the video. Raises ConfigError if a package is missing."""
        try:
            import imageio.v3 as imageio
        except ImportError as error:
            raise ConfigError("--video needs a package: pip install imageio[ffmpeg]") from error
        fps = self.env.metadata.get("render_fps") or 30
        options = {"loop": 0} if self.path.suffix == ".gif" else {"fps": fps}
        if self.path.suffix == ".gif":
            options["duration"] = 1000 / fps
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            imageio.imwrite(self.path, np.stack(self.frames), **options)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--video={self.path} cannot be written ({reason(error)})") from error
