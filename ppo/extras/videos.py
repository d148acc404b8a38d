"""Videos: --video_every during training, and those of ppo evaluate."""

import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Env, Wrapper
from numpy import ndarray

from ppo.callbacks import Callback
from ppo.checkpoint import TEMPORARY
from ppo.config import flag
from ppo.envs.make import calling
from ppo.errors import BadValue, ConfigError, PPOError, reason
from ppo.policy import Evaluation, Policy
from ppo.run import Run

# A palette for each frame of a GIF, as one for all would keep all of them in memory.
COLORS = "split[a][b];[a]palettegen=stats_mode=single[c];[b][c]paletteuse=new=1:dither=none"


@dataclass
class Videos(Callback):
    """Film an episode every few iterations. One that cannot be filmed costs a warning."""

    video_every: int | None = flag(None, 1)
    """Iterations between videos of an episode, in the run's videos/ (none: no videos)."""

    def on_iteration(self, run: Run) -> None:
        if run.is_due(self.video_every):
            path = run.folder.path / "videos" / f"{run.step}.mp4"
            try:
                policy = run.policy()
                film(policy, path, episodes=1, should_stop=run.signals.any)
            except PPOError as error:
                what, *details = error.args
                run.note(f"warning: no video of step {run.step}; {what}", *details)


class Frames(list[ndarray]):
    """Images (H, W, 3) that are written to a video as they are appended, and not kept."""

    def __init__(self, open_writer: Callable[[tuple[int, int]], Any]) -> None:
        super().__init__()
        self.open_writer = open_writer  # given width and height
        self.writer: Any = None

    def append(self, image: Any) -> None:
        image = np.asarray(image)
        if image.ndim != 3:
            raise BadValue(f"its render returned {image!r:.200}, not an image (H, W, 3)")
        if not self.writer:
            height, width, _ = image.shape
            self.writer = self.open_writer((width, height))
            self.writer.send(None)
        self.writer.send(image[..., :3].astype(np.uint8))

    def close(self) -> None:
        if self.writer:
            self.writer.close()


class Filmed(Wrapper):
    """Append an image to frames before each step, and after the last one of an episode."""

    def __init__(self, frames: Frames, env: Env) -> None:
        super().__init__(env)
        self.frames = frames
        if self.render_mode != "rgb_array":
            raise ConfigError("the environment cannot render rgb_array")

    def step(self, action: Any) -> Any:
        self.frames.append(self.render())
        results = self.env.step(action)
        if results[2] or results[3]:
            self.frames.append(self.render())
        return results


def film(policy: Policy, path: Path, **options: Any) -> Evaluation:
    """Evaluate a policy, and write its episodes to a video, which is there once it is whole.
    options: of Policy.evaluate. Raises ConfigError, and what Policy.evaluate raises."""
    with calling(policy.spaces.make_env.spec.id):
        env = policy.make_env()
        rate = env.metadata.get("render_fps") or 30
        env.close()
    temporary = path.with_name(TEMPORARY + path.name)
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame complains that there is none
    about: dict[str, Any] = {"fps": rate, "macro_block_size": 2}
    if path.suffix == ".gif":
        about = {"fps": rate, "macro_block_size": 1, "codec": "gif", "pix_fmt_out": "pal8"}
        about["output_params"] = ["-filter_complex", COLORS]
    try:
        from imageio_ffmpeg import write_frames  # type: ignore[import-untyped]

        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        with closing(Frames(partial(write_frames, str(temporary), **about))) as frames:
            shown = {"render": "rgb_array", "wrap": partial(Filmed, frames)}
            result = policy.evaluate(**{**options, **shown})
        if result.returns:
            os.replace(temporary, path)
    except ImportError as error:
        raise ConfigError("videos need a package: pip install imageio-ffmpeg") from error
    except OSError as error:
        raise ConfigError(f"--video={path} cannot be written ({reason(error)})") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return result
