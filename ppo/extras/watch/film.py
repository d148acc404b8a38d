"""Film the episodes of an evaluation."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ppo.envs.errors import EnvironmentUnavailable
from ppo.errors import SaveFailed
from ppo.policy.spectators import Spectator
from ppo.system.files import atomic_write, new_file
from ppo.system.imports import extra

MIN_FRAME_ROWS = 400  # rows: smaller frames are enlarged by whole numbers
VIDEOS = (".mp4", ".gif")


class Film(Spectator):
    """Write a frame to a new file at each reset and step. Raises ConfigError if it cannot be made,
    SaveFailed if it cannot be written."""

    render_mode: ClassVar[str] = "rgb_array"
    option: ClassVar[str] = "video"

    def __init__(self, path: str | Path) -> None:
        self.path = new_file("--video=", path, VIDEOS)
        self.result = f"video: {path}"
        self.video: Any = None  # once there is a frame
        self.stack = ExitStack()

    def see(self, env: Any) -> None:
        if not self.video:
            rate = env.metadata.get("render_fps", 30)
            with self._named():
                self.video = self.stack.enter_context(open_video(self.path, rate))
        try:
            frame = np.asarray(env.render(), np.uint8)  # (H, W, 3)
        except NotImplementedError:
            raise EnvironmentUnavailable(
                "--video: the environment has no render(), which must return an image (H, W, 3)"
            ) from None
        times = -(-MIN_FRAME_ROWS // len(frame))
        with self._named():
            self.video.append_data(frame.repeat(times, axis=0).repeat(times, axis=1))

    def __exit__(self, *exception: Any) -> None:
        with self._named():
            self.stack.__exit__(*exception)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn an OSError of the video, for which no environment is to blame, into SaveFailed."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or " ".join(str(error).split())
            raise SaveFailed(
                f"--video={self.path} cannot be written ({reason}): give another name"
            ) from error


@contextmanager
def open_video(path: Path, frames_per_second: float) -> Iterator[Any]:
    """Open an imageio writer of a new .mp4 (H.264, which browsers play) or .gif file.

    The file appears only when the context is left without an error. Raises OSError, FileExistsError
    if another process has made it meanwhile, and ConfigError if imageio is not installed."""
    with extra("video"):
        import imageio.v2
        import imageio_ffmpeg  # noqa: F401, which it writes by

    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):  # drawing needs no screen, no sound
        os.environ.setdefault(driver, "dummy")
    options: dict[str, Any] = {
        "fps": frames_per_second,
        "codec": "libx264",
        "pixelformat": "yuv420p",
        "macro_block_size": 2,
    }
    if path.suffix == ".gif":
        options = {"duration": 1000 / frames_per_second, "loop": 0}
    with (
        atomic_write(path, is_new=True) as temporary,
        closing(imageio.v2.get_writer(temporary, **options)) as writer,
    ):
        yield writer
