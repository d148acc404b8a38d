"""What can be done with a run once there is one; each command is its flags, and what they make it do."""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ppo.analysis.check import findings
from ppo.analysis.plots import draw
from ppo.analysis.report import write_report
from ppo.analysis.statistics import confidence_interval
from ppo.config.config import Config, run_folder
from ppo.config.flags import COUNT, NONE, Flags, flag
from ppo.errors import ConfigError
from ppo.policy.policy import Policy, best_video, load_policy
from ppo.run.checkpoint import find_checkpoint
from ppo.run.highlights import KINDS, find_episode
from ppo.run.reader import read_run
from ppo.system.files import write_json

RUN: dict[str, Any] = {"nargs": None, "kind": str}
VIDEOS, PICTURES, PAGES, MODELS = (".mp4", ".gif"), (".png", ".svg"), (".html",), (".onnx",)
TEXT: dict[str, Any] = {"kind": str, "words": NONE}


@dataclass(frozen=True)
class PolicyCommand(Flags):
    """Flags of what is done with a run's policy."""

    run: str = flag("", "folder of a run, its name in runs/, or a checkpoint's file", **RUN)
    env_name: str | None = flag(
        None, "repeat the run's, if it is an import path, to trust it", **TEXT
    )
    model: str | None = flag(None, "likewise", **TEXT)

    def load(self, path: Path, precision: str | None = None) -> Policy:
        """The policy of a checkpoint, as ppo.policy.policy.load_policy returns it."""
        return load_policy(path, self.env_name, self.model, precision=precision)


@dataclass(frozen=True)
class Evaluate(PolicyCommand):
    """Flags of evaluate."""

    about = "Play whole episodes with a saved policy, as the environment itself counts them, and say how good it is."
    episodes: int = flag(100, "how many", **COUNT)
    num_envs: int = flag(8, "environments that are played side by side", **COUNT)
    stochastic: bool = flag(
        False, "draw actions at random as in training, rather than take the likeliest", kind=bool
    )
    seed: int | None = flag(
        None, "of the episodes; none: the run's", kind=int, low=0, high=2**32 - 1, words=NONE
    )
    render: str = flag("none", "human: show it in a window", words=("none", "human"))
    video: str | None = flag(None, "a new file of what happens, .mp4 or .gif", **TEXT)
    output: str | None = flag(
        None, "file of the results; none: evaluation.json in the run's folder", **TEXT
    )

    def __call__(self) -> None:
        """Raises ConfigError for files that cannot be, CheckpointError, EnvironmentUnavailable, and WorkerError if the
        environment raises."""
        if self.video and self.render != "none":
            raise ConfigError("--render=human and --video: give one of them")
        video = new_file("--video=", Path(self.video), VIDEOS) if self.video else None
        path = find_checkpoint(self.run)
        output = check_folder(
            "--output=", Path(self.output) if self.output else folder_of(path) / "evaluation.json"
        )
        before = read_list(output)
        policy = self.load(path)
        seed = policy.config.seed if self.seed is None else self.seed
        mode = None if self.render == "none" else self.render
        num_envs = 1 if mode else min(self.num_envs, self.episodes)
        result = policy.evaluate(
            self.episodes,
            not self.stochastic,
            num_envs,
            render_mode=mode,
            video=video,
            seed=seed,
        )
        interval = confidence_interval(result["returns"])
        about = {"checkpoint": str(path), "env_name": policy.config.env_name, "seed": seed}
        how = {"deterministic": not self.stochastic, "episodes": self.episodes}
        median = float(np.median(result["returns"]))
        spread = {"median": median, "interval_95": None if interval is None else interval.tolist()}
        print(f"{path}: {describe(result, spread)}")
        write_json(output, [*before, {**about, **how, **result, **spread}])
        if video:
            print(f"video: {video}")


@dataclass(frozen=True)
class Render(PolicyCommand):
    """Flags of render."""

    about = "Play an episode of a run's training again and make a video of it."
    run: str = flag("", "folder of the run, or its name in runs/", **RUN)
    episode: str = flag("best", "which", words=KINDS)
    video: str | None = flag(
        None, "a new file, .mp4 or .gif; none: one in the run's videos/", **TEXT
    )

    def __call__(self) -> None:
        """Raises ConfigError if there is no such episode or the video cannot be, NotRepeated if it is not reproducible,
        and as Evaluate does."""
        path = find_checkpoint(self.run)
        episode = find_episode(folder_of(path), self.episode)
        default = folder_of(path) / "videos" / f"{self.episode}-{episode['step']}.mp4"
        video = new_file("--video=", Path(self.video or default), VIDEOS)
        self.load(path).replay(episode, video)
        length = f"{episode['episode_length']} steps, until step {episode['step']:,} of training"
        print(
            f"{self.episode} episode: return {episode['episode_return']:.6g} in {length}\nvideo: {video}"
        )


@dataclass(frozen=True)
class Plot(Flags):
    """Flags of plot."""

    about = "Draw the learning curves of runs; those that differ by their seed only, as one with its 95 % interval."
    runs: tuple[str, ...] = flag((), "folders of runs, or their names in runs/", nargs="+")
    output: str = flag("curves.png", "the picture, a new file, .png or .svg", kind=str)

    def __call__(self) -> None:
        """Raises ConfigError for what is no run, or if the picture cannot be written."""
        path = new_file("--output=", Path(self.output), PICTURES)
        draw([read_run(run_folder(name) or Path(name)) for name in self.runs], path)
        print(f"picture: {self.output}")


@dataclass(frozen=True)
class Export(PolicyCommand):
    """Flags of export."""

    about = "Write a policy as an ONNX file: observation in, action out, with all that is done to both inside."
    output: str = flag("", "the file, .onnx", **RUN)

    def __call__(self) -> None:
        """Raises as ppo.policy.export.export and Evaluate do."""
        path = new_file("", Path(self.output), MODELS)
        policy = self.load(find_checkpoint(self.run), "float32")
        from ppo.policy.export import export  # heavy

        difference = export(policy, path)
        print(f"{path}: its actions differ from the policy's by {difference:.1g} at most")


@dataclass(frozen=True)
class Report(PolicyCommand):
    """Flags of report."""

    about = "Write all there is to know of a run on one page, which needs nothing but a browser."
    run: str = flag("", "folder of the run, or its name in runs/", **RUN)
    output: str | None = flag(None, "the page; none: report.html in the run's folder", **TEXT)

    def __call__(self) -> None:
        """Raises ConfigError if it is no run, or the page cannot be written; and as Evaluate does."""
        run = read_run(run_folder(self.run) or Path(self.run))
        policy = self.load(find_checkpoint(str(run.folder)))
        own = check_folder("--output=", run.folder / "report.html")  # which is written anew
        path = new_file("--output=", Path(self.output), PAGES) if self.output else own
        write_report(run, best_video(run.folder, policy), path)
        print(f"page: {path}")


@dataclass(frozen=True)
class Check(Flags):
    """Flags of check."""

    about = "Look at an environment before training on it, and recommend how."
    env_name: str = flag(
        Config.env_name, "gymnasium id, module:id or module:Class", "env", "env_id", kind=str
    )
    env_kwargs: Any = flag("{}", "arguments of the environment", kind=dict)
    seed: int = flag(0, "of resets and random actions", kind=int, low=0, high=2**31)

    def __call__(self) -> None:
        """Raises EnvironmentUnavailable, and WorkerError if the environment raises."""
        from ppo.trainer import recommend

        make, tried, flags = recommend(self.env_name, self.env_kwargs)
        kwargs = [f"--env_kwargs={json.dumps(self.env_kwargs)}"] if self.env_kwargs else []
        command = shlex.join(["python", "main.py", *flags, *kwargs])
        print(*findings(make, self.seed), *tried, f"recommended: {command}", sep="\n")


def describe(result: dict[str, Any], spread: dict[str, Any]) -> str:
    """An evaluation in a line."""
    interval = (
        ""
        if spread["interval_95"] is None
        else " (95 % interval {:.1f} to {:.1f})".format(*spread["interval_95"])
    )
    episodes = f"{result['episodes']} episode{'s' * (result['episodes'] > 1)} of {np.mean(result['lengths']):.0f} steps"
    line = f"return {result['mean']:.1f} +/- {result['std']:.1f}{interval}, median {spread['median']:.1f}"
    return f"{line}, over {episodes}"


def folder_of(checkpoint: Path) -> Path:
    """The folder of the run that a checkpoint is of, else the one it is in."""
    run = checkpoint.absolute().parents[1]
    return run if (run / "config.json").exists() else checkpoint.parent


def new_file(flag: str, path: Path, suffixes: Sequence[str]) -> Path:
    """Where something is to be written, whose folder is made. Raises ConfigError if there is something already, if it
    is of another kind, or if nothing can be written there."""
    if path.suffix not in suffixes:
        raise ConfigError(f"{flag}{path}: give a name that ends with {' or '.join(suffixes)}")
    if path.exists():
        raise ConfigError(
            f"{flag}{path} is there already, and nothing is overwritten: give another name"
        )
    return check_folder(flag, path)


def check_folder(flag: str, path: Path) -> Path:
    """A path, whose folder is made. Raises ConfigError if nothing can be written there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{flag}{path} cannot be written to ({error.strerror}): give another name"
        ) from error
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(
            f"{flag}{path} cannot be written to (its folder is read-only): give another name"
        )
    return path


def read_list(path: Path) -> list[Any]:
    """What a file holds that is to be added to. Raises ConfigError if that is something else than a list."""
    try:
        entries = json.loads(path.read_text()) if path.exists() else []
        if not isinstance(entries, list):
            raise ValueError("it is no list")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--output={path} cannot be added to ({error}): give another file"
        ) from error
    return entries
