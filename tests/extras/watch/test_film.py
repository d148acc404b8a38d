"""Videos: there when they are whole, of frames large enough to see."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import imageio.v2
import imageio.v3
import numpy as np
import pytest
from gymnasium import Wrapper
from gymnasium.wrappers import RecordVideo

from ppo.envs.errors import EnvironmentUnavailable
from ppo.errors import SaveFailed
from ppo.extras.watch.film import MIN_FRAME_ROWS, Film
from ppo.policy.spectators import Seen
from tests.running import make_env, run_main, spaces_of


class Flicker(gymnasium.Env):
    """Is rendered in another gray at every step."""

    def __init__(self, size: int = MIN_FRAME_ROWS) -> None:
        self.size = size

    def reset(self, **options: Any) -> tuple[int, dict[str, Any]]:
        self.gray = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.gray += 60
        return 0, 0.0, False, False, {}

    def render(self) -> np.ndarray:
        return np.full((self.size, self.size, 3), self.gray, np.uint8)


class Blind(Flicker):
    """Has no picture."""

    render = gymnasium.Env.render


class Records(RecordVideo):
    """Films nothing."""

    reset, step, close = Wrapper.reset, Wrapper.step, Wrapper.close

    def __init__(self, env: gymnasium.Env) -> None:
        Wrapper.__init__(self, env)
        self._saved_kwargs: dict[str, Any] = {}
        self.recorded_frames: list[Any] = []


def test_a_wrapper_that_films_is_named_with_the_flags_that_do() -> None:
    said = "RecordVideo films in every environment of every process: leave it out, --video_every"
    (warning,) = spaces_of("CartPole-v1", wrapper=[f"{__name__}:Records"]).warnings
    assert said in warning
    own = "gymnasium.wrappers:RecordVideo(video_folder='videos')"  # which needs a render_mode
    with pytest.raises(EnvironmentUnavailable, match=said):
        make_env("CartPole-v1", wrapper=[own])


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_a_video_has_a_frame_for_each_reset_and_step(name: str, tmp_path: Path) -> None:
    path = tmp_path / "videos" / name
    with Film(path) as film:
        env = Seen(Flicker(), [film])
        env.reset(seed=0)
        for action in (0, 1, 0):
            env.step(action)
        assert not path.exists()
    assert len(imageio.v2.mimread(path, memtest=False)) == 4
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_after_an_error_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(AttributeError), Film(tmp_path / "film.gif") as film:
        Seen(Flicker(), [film]).step(0)  # before a reset
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_cannot_be_filmed_is_named(tmp_path: Path) -> None:
    said = pytest.raises(EnvironmentUnavailable, match=r"no render\(\), which must return an image")
    with said, Film(tmp_path / "film.gif") as film:
        Seen(Blind(), [film]).reset(seed=0)
    assert list(tmp_path.iterdir()) == []


def test_of_two_films_of_one_name_the_first_stays(tmp_path: Path) -> None:
    path = tmp_path / "film.gif"
    said = pytest.raises(SaveFailed, match=r"film\.gif cannot be written \(File exists\)")
    with said, Film(path) as late:
        Seen(Flicker(), [late]).reset(seed=0)
        with Film(path) as early:
            env = Seen(Flicker(), [early])
            env.reset(seed=0)
            env.step(0)
    assert len(imageio.v2.mimread(path, memtest=False)) == 2
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_shows_every_step(cartpole_run: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    done = run_main(
        "evaluate",
        str(cartpole_run),
        "--episodes=2",
        f"--video={path}",
        f"--output={tmp_path / 'e.json'}",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"video: {path}" in done.stdout
    (entry,) = json.loads((tmp_path / "e.json").read_text())
    frames = imageio.v3.imread(path, index=None if suffix == ".mp4" else ...)
    assert frames.shape[1:] == (400, 600, 3)
    if suffix == ".mp4":  # a gif joins frames that are alike
        assert len(frames) == sum(entry["lengths"]) + 2
        assert imageio.v3.immeta(path)["codec"] == "h264"
    assert len(np.unique(frames[:, ::20, ::20].reshape(len(frames), -1), axis=0)) > 5  # it moves
    assert [file.name for file in tmp_path.glob(".tmp-*")] == []
