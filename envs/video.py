"""Record videos of environments."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Env, Wrapper

from ppo.envs.episodes import close_env
from ppo.system.files import atomic_write
from ppo.system.imports import extra

MIN_FRAME_ROWS = 400  # rows: smaller frames are enlarged by whole numbers


@contextmanager
def open_video(path: Path, frames_per_second: float) -> Iterator[Any]:
    """Open an imageio writer of a new .mp4 (H.264, which browsers play) or .gif file.

    The file appears only when the context is left without an error. Raises OSError, and
    ConfigError if imageio is not installed."""
    with extra("video"):
        import imageio.v2
        import imageio_ffmpeg  # noqa: F401, which it writes by

    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):  # drawing needs no screen, no sound
        os.environ.setdefault(driver, "dummy")
    path.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {
        "fps": frames_per_second,
        "codec": "libx264",
        "pixelformat": "yuv420p",
        "macro_block_size": 2,
    }
    if path.suffix == ".gif":
        options = {"duration": 1000 / frames_per_second, "loop": 0}
    with (
        atomic_write(path) as temporary,
        closing(imageio.v2.get_writer(temporary, **options)) as writer,
    ):
        yield writer


class Filmed(Wrapper):
    """Write a frame to a video at each reset and step.

    env: made with render_mode="rgb_array"; video: as open_video yields it."""

    def __init__(self, env: Env, video) -> None:
        super().__init__(env)
        self.video = video

    def reset(self, **options):
        result = self.env.reset(**options)
        self._film()
        return result

    def step(self, action):
        result = self.env.step(action)
        self._film()
        return result

    def _film(self) -> None:
        append_frame(self.video, self.env.render())


def append_frame(video, frame) -> None:
    """Add a frame (H, W, 3) to a video, enlarged if it is small."""
    frame = np.asarray(frame, np.uint8)
    times = -(-MIN_FRAME_ROWS // len(frame))
    video.append_data(frame.repeat(times, axis=0).repeat(times, axis=1))


@contextmanager
def filmed(envs: Sequence[Env], path: Path | None) -> Iterator[Sequence[Env]]:
    """Yield environments, filmed into a file if there is a path, and close them afterwards."""
    try:
        if path and envs:
            with open_video(path, envs[0].metadata.get("render_fps", 30)) as video:
                yield [Filmed(env, video) for env in envs]
        else:
            yield envs
    finally:
        for env in envs:
            close_env(env)
