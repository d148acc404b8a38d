"""Videos: --video_every during training, and those of ppo evaluate."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.callbacks import Callback
from ppo.checkpoint import TEMPORARY
from ppo.config import flag
from ppo.envs.make import calling
from ppo.errors import BadValue, ConfigError, PPOError, reason
from ppo.policy import Evaluation, Policy
from ppo.run import Run

LEAST_HEIGHT = 400  # of a video in pixels: smaller images are enlarged by a whole number


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

    def __init__(self, writer: Any) -> None:
        super().__init__()
        self.writer = writer

    def append(self, image: ndarray) -> None:
        if image.ndim != 3:
            raise BadValue(f"its render returned {image!r:.200}, not an image (H, W, 3)")
        if image.dtype.kind == "f" and image.max() <= 1:
            image = 255 * image
        times = -(-LEAST_HEIGHT // len(image))
        high = image.astype(np.uint8).repeat(times, 0)
        self.writer.append_data(high.repeat(times, 1))


def film(policy: Policy, path: Path, **options: Any) -> Evaluation:
    """Evaluate a policy, and write its episodes to a video, which is there once it is whole.
    options: of Policy.evaluate. Raises ConfigError, and what Policy.evaluate raises."""
    with calling(policy.spaces.make_env.spec.id):
        env = policy.make_env()
        rate = env.metadata.get("render_fps") or 30
        env.close()
    about: dict[str, Any] = {"fps": rate, "macro_block_size": 2}
    if path.suffix == ".gif":
        about = {"duration": 1000 / rate, "loop": 0}
    temporary = path.with_name(TEMPORARY + path.name)
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame complains that there is none
    try:
        import imageio_ffmpeg  # type: ignore[import-untyped] # noqa: F401, imageio writes by it
        from imageio.v2 import get_writer

        path.parent.mkdir(parents=True, exist_ok=True)
        with get_writer(temporary, **about) as writer:
            result = policy.evaluate(frames=Frames(writer), **options)
        if result.returns:
            os.replace(temporary, path)
    except ImportError as error:
        raise ConfigError("videos need a package: pip install imageio[ffmpeg]") from error
    except OSError as error:
        raise ConfigError(f"--video={path} cannot be written ({reason(error)})") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return result
