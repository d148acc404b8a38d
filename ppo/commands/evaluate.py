"""Evaluate a saved policy."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ppo.analysis.statistics import confidence_interval
from ppo.commands.shared import (
    TEXT,
    VIDEOS,
    PolicyCommand,
    check_folder,
    folder_of,
    interval_text,
    new_file,
)
from ppo.config.flags import COUNT, NONE, flag
from ppo.errors import ConfigError
from ppo.run.checkpoint import find_checkpoint
from ppo.system.files import write_json


@dataclass(frozen=True)
class Evaluate(PolicyCommand):
    """Evaluate a policy by whole episodes, as the environment itself counts them."""

    episodes: int = flag(100, "Number of episodes.", **COUNT)
    num_envs: int = flag(8, "Number of environments played side by side.", **COUNT)
    stochastic: bool = flag(
        False, "Sample actions as in training instead of taking the most likely ones."
    )
    seed: int | None = flag(
        None,
        "Seed of the episodes; none is the seed of the run.",
        kind=int,
        low=0,
        high=2**32 - 1,
        words=NONE,
    )
    render: str = flag("none", "Show the episodes in a window.", words=("none", "human"))
    video: str | None = flag(
        None, "New .mp4 or .gif file with a video of the episodes; none makes none.", **TEXT
    )
    output: str | None = flag(
        None,
        "JSON file to which the results are added; none is evaluation.json in the run's folder.",
        **TEXT,
    )

    def __call__(self) -> None:
        """Raises ConfigError for unusable files, CheckpointError, EnvironmentUnavailable,
        WorkerError if the environment raises."""
        render_mode = None if self.render == "none" else self.render
        if self.video and render_mode:
            raise ConfigError("--render=human and --video: give one of them")
        video = None
        if self.video:
            video = new_file("--video=", self.video, VIDEOS)
        path = find_checkpoint(self.run)
        output = folder_of(path) / "evaluation.json"
        if self.output:
            output = Path(self.output)
        before = _read_list(check_folder("--output=", output))
        policy = self.load(path)
        seed = policy.config.seed if self.seed is None else self.seed
        num_envs = 1 if render_mode else min(self.num_envs, self.episodes)
        result = policy.evaluate(
            self.episodes,
            not self.stochastic,
            num_envs,
            render_mode=render_mode,
            video=video,
            seed=seed,
        )
        interval = confidence_interval(result["returns"])
        if interval is not None:
            interval = interval.tolist()
        entry = {
            "checkpoint": str(path),
            "env_name": policy.config.env_name,
            "seed": seed,
            "deterministic": not self.stochastic,
            **result,
            "median": float(np.median(result["returns"])),
            "interval_95": interval,
        }
        print(f"{path}: {_describe(entry)}")
        write_json(output, [*before, entry])
        if video:
            print(f"video: {video}")


def _describe(entry: dict[str, Any]) -> str:
    """Describe an evaluation in a line."""
    episodes = "1 episode" if entry["episodes"] == 1 else f"{entry['episodes']} episodes"
    interval = interval_text(entry["interval_95"])
    return (
        f"return {entry['mean']:.1f} +/- {entry['std']:.1f}{interval}, "
        f"median {entry['median']:.1f}, over {episodes} of {np.mean(entry['lengths']):.0f} steps"
    )


def _read_list(path: Path) -> list[Any]:
    """Read the list in a JSON file, if there is one. Raises ConfigError if it holds no list."""
    if not path.exists():
        return []
    try:
        entries = json.loads(path.read_text())
        if isinstance(entries, list):
            return entries
        problem = "it is no list"
    except (OSError, ValueError) as error:
        problem = str(error)
    raise ConfigError(f"--output={path} cannot be added to ({problem}): give another file")
