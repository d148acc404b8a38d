"""ppo evaluate: play whole episodes of runs or policy files, and film them."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.config import flag
from ppo.errors import ConfigError, Interrupted, reason


@dataclass(frozen=True)
class Flags:
    episodes: int = flag(20, 1, 1e6)
    """Number of episodes."""
    num_envs: int = flag(8, 1, 1e6)
    """Number of environments that are played side by side."""
    seed: int = flag(0, 0, 2**32 - 1)
    """Random seed of the episodes."""
    stochastic: bool = False
    """Sample actions, in place of the most likely ones."""
    video: str | None = None
    """File to write a video to, such as play.mp4 or play.gif."""
    render: str | None = None
    """human: show the episodes in a window."""


def main(paths: list[str], options: Flags, flags: dict[str, Any]) -> None:
    """Evaluate runs or policy files. flags: of the environment, in place of the runs'."""
    if not paths:
        raise ConfigError("evaluate needs a run or a policy file: ppo evaluate runs/NAME")
    values = {**vars(options)}
    video = values.pop("video")
    if video and Path(video).suffix not in (".mp4", ".gif"):
        raise ConfigError(f"--video={video}: give a file that ends in .mp4 or .gif")
    from ppo.policy import load_policy
    from ppo.process import StopSignals

    for path in paths:
        frames: list[ndarray] | None = [] if video else None
        with StopSignals() as signals:
            policy = load_policy(path, **flags)
            result = policy.evaluate(**values, frames=frames, should_stop=signals.any)
        if signals.received:
            raise Interrupted(f"{signals.received.name}: stopped", signals.received)
        interval = 1.96 * float(np.std(result.returns)) / math.sqrt(max(1, len(result.returns) - 1))
        metrics = "".join(f", {name} {value:.4g}" for name, value in result.env.items())
        print(
            f"{path}: return {result.mean:.2f} +- {interval:.2f} (95 % interval), standard "
            f"deviation {result.std:.2f}, {len(result.returns)} episodes{metrics}"
        )
        if frames and video:
            env = policy.make_env()
            write_video(Path(video), frames, env.metadata.get("render_fps") or 30)
            env.close()


def write_video(path: Path, frames: list[ndarray], rate: float) -> None:
    """Write images (H, W, 3), rate of them a second, as a video. Raises ConfigError if that fails,
    or if imageio is missing."""
    options: dict[str, Any] = {"fps": rate}
    if path.suffix == ".gif":
        options = {"duration": 1000 / rate, "loop": 0}
    try:
        import imageio.v3 as imageio

        path.parent.mkdir(parents=True, exist_ok=True)
        imageio.imwrite(path, np.stack(frames), **options)
    except ImportError as error:
        raise ConfigError("--video needs a package: pip install imageio[ffmpeg]") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"--video={path} cannot be written ({reason(error)})") from error
