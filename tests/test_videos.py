"""Videos of a run, and of evaluations."""

import imageio.v3
import numpy as np
import pytest
from gymnasium.spaces import Box

from ppo.errors import ConfigError, EnvironmentFailed
from ppo.extras.videos import film
from tests.running import assert_same_state, iterate, running, train
from tests.worlds import Constant


class Shown(Constant):
    """Is shown as dark as its episode is young; fails if it is asked to, after a file says so."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = Box(0, 1, (1,))
    shape = (20, 30, 3)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.full(self.shape, 20 * self.steps, np.uint8)


class Broken(Shown):
    def render(self):
        raise OSError("the screen is black")


class Blind(Shown):
    def render(self):
        return None


def test_an_episode_is_filmed_every_few_iterations_which_changes_nothing_else(tmp_path):
    train(Shown, tmp_path / "filmed", 5, video_every=2)
    train(Shown, tmp_path / "not", 5)
    videos = sorted((tmp_path / "filmed" / "videos").iterdir())
    assert [path.name for path in videos] == ["128.mp4", "256.mp4"]
    images = imageio.v3.imread(videos[0])
    assert images.shape == (11, 20, 30, 3)  # before the first step, and after each of ten
    assert (np.diff(images.mean((1, 2, 3))) > 10).all()
    assert_same_state(tmp_path / "filmed", tmp_path / "not")


@pytest.mark.parametrize(
    ("env", "said"),
    [(Broken, "the screen is black"), (Blind, "not an image"), (Constant, "render")],
)
def test_what_cannot_be_filmed_costs_a_warning(env, said, tmp_path, capsys):
    assert train(env, tmp_path, 3, video_every=2).steps == 192
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: no video of step 128")
    assert said in line
    assert not [*tmp_path.glob("videos/*")]


def test_a_film_is_there_once_it_is_whole(tmp_path):
    with running(Shown, tmp_path / "run") as run:
        iterate(run)
        policy = run.policy()
    result = film(policy, tmp_path / "film.gif", episodes=2)
    assert result.lengths == [10, 10]
    images = imageio.v3.imread(tmp_path / "film.gif")
    assert len(images) == 22
    assert not film(policy, tmp_path / "a" / "b.gif", should_stop=lambda: True).returns
    assert not [*(tmp_path / "a").iterdir()]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--video="):
        film(policy, tmp_path / "file" / "film.gif")
    policy.spaces.make_env.spec.entry_point = Broken
    with pytest.raises(EnvironmentFailed, match="the screen is black"):
        film(policy, tmp_path / "broken.mp4")
    assert not [*tmp_path.glob("*.mp4")]
