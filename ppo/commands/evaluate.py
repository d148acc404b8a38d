"""Evaluate a saved policy."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.progress import Progress

from ppo.commands.shared import (
    VIDEOS,
    PolicyCommand,
    check_folder,
    folder_of,
    interval_text,
    new_file,
)
from ppo.config.flags import Count, flag
from ppo.demonstrations.files import check_new
from ppo.errors import ConfigError, SaveFailed
from ppo.policy.evaluation import MAX_STEPS
from ppo.run.checkpoint import find_checkpoint
from ppo.run.statistics import confidence_interval
from ppo.system.files import load_json, write_json


class Evaluate(PolicyCommand):
    """Evaluate a policy by whole episodes, as the environment itself counts them."""

    episodes: Count = flag(100, "Number of episodes.")
    env_kwargs: Any | None = flag(
        None, "Keyword arguments of a variant of the environment; none: those of the run."
    )
    max_steps: Count = flag(
        MAX_STEPS, "Steps after which an episode is cut off; its return so far counts."
    )
    num_envs: Count = flag(8, "Number of environments stepped in parallel.")
    stochastic: bool = flag(
        False, "Sample actions as in training instead of taking the most likely ones."
    )
    seed: int | None = flag(
        None, "Seed of the episodes; none: the seed of the run.", low=0, high=2**32 - 1
    )
    render: Literal["human"] | None = flag(None, "Show the episodes in a window.")
    video: str | None = flag(
        None, "New .mp4 or .gif file for a video of the episodes; none: no video."
    )
    record: str | None = flag(
        None,
        "New .npz file, or minari:ID, for the episodes as demonstrations; none: they are not kept.",
    )
    output: str | None = flag(
        None,
        "JSON file to append the results to; none: evaluation.json in the run's folder.",
    )

    def __call__(self) -> None:
        """Evaluate the policy, print a summary, and add the results to a JSON file.

        Raises ConfigError for unusable flags or files, CheckpointError if the checkpoint cannot be
        used or its environment cannot be made, WorkerError if the environment raises or hangs,
        SaveFailed if the results cannot be written."""
        if self.video and self.render:
            raise ConfigError("--render=human and --video: give one of them")
        video = self.video and new_file("--video=", self.video, VIDEOS)
        record = self.record and check_new(self.record)
        path = find_checkpoint(self.run)
        output = Path(self.output or folder_of(path) / "evaluation.json")
        _read_list(check_folder("--output=", output))  # before the time is spent
        policy = self.load(path, env_kwargs=self.env_kwargs)
        seed = policy.config.seed if self.seed is None else self.seed
        console = Console(quiet=not sys.stdout.isatty())
        with Progress(transient=True, console=console) as progress:
            task = progress.add_task("evaluation", total=self.episodes)
            result = policy.isolated(
                "the evaluation",
                policy.evaluate,
                self.episodes,
                not self.stochastic,
                1 if self.render else self.num_envs,
                render_mode=self.render,
                video=video,
                seed=seed,
                max_steps=self.max_steps,
                record=record,
                on_progress=lambda done: progress.update(task, completed=done),
            )
        interval = confidence_interval(result.returns, np.mean)
        median = float(np.median(result.returns))
        print(
            f"{path}: return {result.mean:.1f} +/- {result.std:.1f}"
            f"{interval_text(interval)}, median {median:.1f}, "
            f"mean length {np.mean(result.lengths):.0f}, episodes: {self.episodes}"
        )
        if result.env:
            print("environment:", *(f"{name}={x:.4g}" for name, x in result.env.items()))
        if result.unfinished:
            print(f"{result.unfinished} episodes were cut off after {self.max_steps:,} steps")
        entry = {
            "checkpoint": str(path),
            "env_name": policy.config.env_name,
            "env_kwargs": policy.config.env_kwargs,
            "seed": seed,
            "deterministic": not self.stochastic,
            **asdict(result),
            "median": median,
            "interval_95": interval if interval is None else interval.tolist(),
        }
        try:
            write_json(output, [*_read_list(output), entry])
        except OSError as error:
            raise SaveFailed(
                f"--output={output} cannot be written ({error.strerror or error}): "
                "give another file"
            ) from error
        if video:
            print(f"video: {video}")
        if record:
            print(f"demonstrations: {record}")


def _read_list(path: Path) -> list[Any]:
    """Return the list in a JSON file, [] if there is no file. Raises ConfigError if it cannot be
    read or holds no list, or if it is not a regular file, which might never end or be replaced."""
    try:
        entries = load_json(path)
        if not isinstance(entries, list):
            raise ValueError("it is not a list")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--output={path} cannot be added to ({error}): give another file"
        ) from error
    return entries
