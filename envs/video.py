"""What environments show, as videos."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

SMALLEST = 400  # rows: smaller pictures are enlarged by whole numbers


class Video(AbstractContextManager):
    """A file of the frames that are put into it: .mp4, H.264 as browsers play it, or .gif. It is there, whole, when the
    context is left without an error. Raises OSError."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        import imageio.v2

        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # to draw takes no screen
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.temporary = path, path.with_name(f".tmp-{path.name}")
        if path.suffix == ".gif":
            options: dict[str, Any] = {"duration": 1000 / frames_per_second, "loop": 0}
        else:
            options = {
                "fps": frames_per_second,
                "codec": "libx264",
                "pixelformat": "yuv420p",
                "macro_block_size": 2,
            }
        self.writer = imageio.v2.get_writer(self.temporary, **options)

    def put(self, frame: np.ndarray) -> None:
        """frame: (H, W, 3) uint8."""
        times = -(-SMALLEST // len(frame)) if len(frame) < SMALLEST else 1
        self.writer.append_data(frame.repeat(times, axis=0).repeat(times, axis=1))

    def __exit__(self, *exception: object) -> None:
        self.writer.close()
        if exception[0] is None:
            self.temporary.replace(self.path)
        else:
            self.temporary.unlink(missing_ok=True)


class Filmed(gymnasium.Wrapper):
    """Puts what is shown at each reset and step into a video; the environment was made with render_mode="rgb_array"."""

    def __init__(self, env: gymnasium.Env, video: Video) -> None:
        super().__init__(env)
        self.video = video

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(**options)
        self._film()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._film()
        return result

    def _film(self) -> None:
        frame: Any = self.env.render()
        self.video.put(np.asarray(frame, np.uint8))
