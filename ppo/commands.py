"""What can be done with a run once there is one; each command is its flags, and what they make it do."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ppo.check import findings
from ppo.checkpoint import find_checkpoint
from ppo.config import Config, run_folder
from ppo.flags import COUNT, NONE, ConfigError, Flags, flag
from ppo.plots import draw, read_run
from ppo.policy import best_video, load_policy
from ppo.replay import KINDS, find_episode
from ppo.report import write_report
from ppo.run import write_json
from ppo.statistics import confidence_interval

RUN: dict[str, Any] = {"nargs": None, "kind": str}
PICTURE = "a name that ends with .png or .svg"
TEXT: dict[str, Any] = {"kind": str, "words": NONE}


@dataclass(frozen=True)
class Evaluate(Flags):
    """Flags of evaluate."""

    about = "Play whole episodes with a saved policy, as the environment itself counts them, and say how good it is."
    run: str = flag("", "folder of a run, its name in runs/, or a checkpoint's file", **RUN)
    episodes: int = flag(100, "how many", **COUNT)
    num_envs: int = flag(8, "environments that are played side by side", **COUNT)
    stochastic: bool = flag(False, "draw actions at random as in training, rather than take the likeliest", kind=bool)
    seed: int | None = flag(None, "of the episodes; none: the run's", kind=int, low=0, high=2**32 - 1, words=NONE)
    render: str = flag("none", "human: show it in a window", words=("none", "human"))
    video: str | None = flag(None, "a new file of what happens, .mp4 or .gif", **TEXT)
    output: str | None = flag(None, "file of the results; none: evaluation.json in the run's folder", **TEXT)
    env_name: str | None = flag(None, "repeat the run's, if it is an import path, to trust it", **TEXT)
    model: str | None = flag(None, "likewise", **TEXT)

    def __call__(self) -> None:
        """Raises ConfigError for files that cannot be, CheckpointError, EnvironmentUnavailable, and WorkerError if the
        environment raises."""
        video = self.video and new_video(self.video)
        path = find_checkpoint(self.run)
        policy = load_policy(path, self.env_name, self.model)
        seed = policy.config.seed if self.seed is None else self.seed
        mode = None if self.render == "none" else self.render
        num_envs = 1 if mode else min(self.num_envs, self.episodes)
        result = policy.evaluate(self.episodes, not self.stochastic, num_envs, mode, video or None, seed)
        returns = result["returns"]
        about = {"checkpoint": str(path), "env_name": policy.config.env_name, "seed": seed}
        how = {"deterministic": not self.stochastic, "episodes": self.episodes}
        interval = confidence_interval(returns)
        spread = {"median": float(np.median(returns)), "interval_95": None if interval is None else interval.tolist()}
        append_json(
            Path(self.output) if self.output else folder_of(path) / "evaluation.json",
            {**about, **how, **result, **spread},
        )
        print(f"{path}: {describe(result, spread)}")
        if video:
            print(f"video: {video}")


@dataclass(frozen=True)
class Render(Flags):
    """Flags of render."""

    about = "Play an episode of a run's training again and make a video of it."
    run: str = flag("", "folder of the run, or its name in runs/", **RUN)
    episode: str = flag("best", "which", words=KINDS)
    video: str | None = flag(None, "a new file, .mp4 or .gif; none: one in the run's videos/", **TEXT)
    env_name: str | None = flag(None, "repeat the run's, if it is an import path, to trust it", **TEXT)
    model: str | None = flag(None, "likewise", **TEXT)

    def __call__(self) -> None:
        """Raises ConfigError if there is no such episode or the video cannot be, NotRepeated if it is not reproducible,
        and as Evaluate does."""
        path = find_checkpoint(self.run)
        episode = find_episode(folder_of(path), self.episode)
        video = new_video(self.video or str(folder_of(path) / "videos" / f"{self.episode}-{episode['step']}.mp4"))
        load_policy(path, self.env_name, self.model).replay(episode, video)
        length = f"{episode['episode_length']} steps, until step {episode['step']:,} of training"
        print(f"{self.episode} episode: return {episode['episode_return']:.6g} in {length}\nvideo: {video}")


@dataclass(frozen=True)
class Plot(Flags):
    """Flags of plot."""

    about = "Draw the learning curves of runs; those that differ by their seed only, as one with its 95 % interval."
    runs: tuple[str, ...] = flag((), "folders of runs, or their names in runs/", nargs="+")
    output: str = flag("curves.png", "the picture", kind=str, pattern=r".*\.(png|svg)", form=PICTURE)

    def __call__(self) -> None:
        """Raises ConfigError for what is no run, or if the picture cannot be written."""
        draw([read_run(run_folder(name) or Path(name)) for name in self.runs], Path(self.output))
        print(f"picture: {self.output}")


@dataclass(frozen=True)
class Export(Flags):
    """Flags of export."""

    about = "Write a policy as an ONNX file: observation in, action out, with all that is done to both inside."
    run: str = flag("", "folder of a run, its name in runs/, or a checkpoint's file", **RUN)
    output: str = flag("", "the file, .onnx", **RUN)
    env_name: str | None = flag(None, "repeat the run's, if it is an import path, to trust it", **TEXT)
    model: str | None = flag(None, "likewise", **TEXT)

    def __call__(self) -> None:
        """Raises as ppo.export.export and Evaluate do."""
        path = Path(self.output)
        if path.suffix != ".onnx" or path.exists():
            problem = "is there already, and nothing is overwritten" if path.exists() else "does not end with .onnx"
            raise ConfigError(f"{path} {problem}: give another name")
        policy = load_policy(find_checkpoint(self.run), self.env_name, self.model, precision="float32")
        from ppo.export import export  # heavy

        difference = export(policy, path)
        print(f"{path}: its actions differ from the policy's by {difference:.1g} at most")


@dataclass(frozen=True)
class Report(Flags):
    """Flags of report."""

    about = "Write all there is to know of a run on one page, which needs nothing but a browser."
    run: str = flag("", "folder of the run, or its name in runs/", **RUN)
    output: str | None = flag(None, "the page; none: report.html in the run's folder", **TEXT)
    env_name: str | None = flag(None, "repeat the run's, if it is an import path, to trust it", **TEXT)
    model: str | None = flag(None, "likewise", **TEXT)

    def __call__(self) -> None:
        """Raises ConfigError if it is no run, or the page cannot be written; and as Evaluate does."""
        run = read_run(run_folder(self.run) or Path(self.run))
        policy = load_policy(find_checkpoint(str(run.folder)), self.env_name, self.model)
        path = Path(self.output) if self.output else run.folder / "report.html"
        try:
            write_report(run, best_video(run.folder, policy), path)
        except OSError as error:
            raise ConfigError(f"--output={path} cannot be written to ({error.strerror}): give another file") from error
        print(f"page: {path}")


@dataclass(frozen=True)
class Check(Flags):
    """Flags of check."""

    about = "Look at an environment before training on it, and recommend how."
    env_name: str = flag(Config.env_name, "gymnasium id, module:id or module:Class", "env", "env_id", kind=str)
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
        "" if spread["interval_95"] is None else " (95 % interval {:.1f} to {:.1f})".format(*spread["interval_95"])
    )
    episodes = f"{result['episodes']} episode{'s' * (result['episodes'] > 1)} of {np.mean(result['lengths']):.0f} steps"
    line = f"return {result['mean']:.1f} +/- {result['std']:.1f}{interval}, median {spread['median']:.1f}"
    return f"{line}, over {episodes}"


def folder_of(checkpoint: Path) -> Path:
    """The folder of the run that a checkpoint is of, else the one it is in."""
    run = checkpoint.absolute().parents[1]
    return run if (run / "config.json").exists() else checkpoint.parent


def new_video(name: str) -> Path:
    """Where a video is to be written. Raises ConfigError if there is something already, or it is of another kind."""
    path = Path(name)
    if path.suffix not in (".mp4", ".gif"):
        raise ConfigError(f"--video={name}: give a name that ends with .mp4 or .gif")
    if path.exists():
        raise ConfigError(f"--video={name} is there already, and nothing is overwritten: give another name")
    return path


def append_json(path: Path, entry: dict[str, Any]) -> None:
    """Add to the list in a file. Raises ConfigError if that is something else, or cannot be written."""
    try:
        entries = json.loads(path.read_text()) if path.exists() else []
        if not isinstance(entries, list):
            raise ValueError("it is no list")
        write_json(path, [*entries, entry])
    except (OSError, ValueError) as error:
        raise ConfigError(f"--output={path} cannot be added to ({error}): give another file") from error
