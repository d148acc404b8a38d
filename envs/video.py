"""Film environments."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ppo.envs.checks import ResetResult, StepResult

SMALLEST = 400  # rows: smaller frames are enlarged by whole numbers


class Video(AbstractContextManager["Video"]):
    """Write frames to a file: .mp4 (H.264, as browsers play it) or .gif.

    The file appears, whole, when the context is left without an error. Raises OSError."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        import imageio.v2

        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # drawing needs no screen
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.temporary = path.with_name(f".tmp-{path.name}")
        options: dict[str, Any] = {
            "fps": frames_per_second,
            "codec": "libx264",
            "pixelformat": "yuv420p",
            "macro_block_size": 2,
        }
        if path.suffix == ".gif":
            options = {"duration": 1000 / frames_per_second, "loop": 0}
        self.writer = imageio.v2.get_writer(self.temporary, **options)

    def write(self, frame: np.ndarray) -> None:
        """Add a frame (H, W, 3) uint8."""
        times = -(-SMALLEST // len(frame))
        self.writer.append_data(frame.repeat(times, axis=0).repeat(times, axis=1))

    def __exit__(self, *exception: object) -> None:
        self.writer.close()
        if exception[0] is None:
            self.temporary.replace(self.path)
        else:
            self.temporary.unlink(missing_ok=True)


class Filmed(gymnasium.Wrapper):
    """Write a frame to a video at each reset and step.

    The environment was made with render_mode="rgb_array"."""

    def __init__(self, env: gymnasium.Env, video: Video) -> None:
        super().__init__(env)
        self.video = video

    def reset(self, **options: Any) -> ResetResult:
        result = self.env.reset(**options)
        self._film()
        return result

    def step(self, action: Any) -> StepResult:
        result = self.env.step(action)
        self._film()
        return result

    def _film(self) -> None:
        frame: Any = self.env.render()
        self.video.write(np.asarray(frame, np.uint8))
