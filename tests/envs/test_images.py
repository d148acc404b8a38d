"""Images against what they should become, made by hand; and where actions are repeated."""

import os
from pathlib import Path
from typing import Any

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ppo import load_policy, train
from ppo.config.settings import settings_of
from ppo.envs.frame_skip import RepeatAction
from ppo.envs.observations import ObserveParts
from ppo.errors import ConfigError
from tests.running import make_env, run_main

WEIGHTS = np.array([0.299, 0.587, 0.114])  # of red, green and blue, by ITU-R BT.601


class Slides(gymnasium.Env):
    """Shows one image after another; the episode ends with the last. Slide number n earns n."""

    action_space = spaces.Discrete(2)

    def __init__(self, images: Any, truncates: bool = False) -> None:
        self.images, self.truncates = np.asarray(images, np.uint8), truncates
        self.observation_space = spaces.Box(0, 255, self.images.shape[1:], np.uint8)
        self.actions: list[int] = []

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        self.number = 0
        return self.images[0], {"seed": seed}

    def step(self, action: int) -> tuple[np.ndarray, int, bool, bool, dict]:
        self.actions.append(action)
        self.number += 1
        ended = self.number == len(self.images) - 1
        image, number = self.images[self.number], self.number
        return (
            image,
            number,
            ended and not self.truncates,
            ended and self.truncates,
            {"number": number},
        )


def stacked(env: gymnasium.Env, size: int, num_images: int, image: str = "gray") -> ObserveParts:
    return ObserveParts(env, image, size, num_images)


def plain(*values: int) -> list[np.ndarray]:
    """Images of the same value everywhere."""
    return [np.full((100, 90), value) for value in values]


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)


def first_pixels(env: gymnasium.Env, num_steps: int) -> list[list[int]]:
    """The channels of a pixel after a reset and each step."""
    observations = [env.reset()[0].copy(), *(env.step(0)[0].copy() for _ in range(num_steps))]
    return [observation[5, 7].tolist() for observation in observations]


def test_the_oldest_image_is_first_and_a_reset_fills_all_with_its_own() -> None:
    env = stacked(Slides(plain(10, 20, 30, 40, 50)), 84, 3)
    expected = [[10, 10, 10], [10, 10, 20], [10, 20, 30], [20, 30, 40], [30, 40, 50]]
    assert first_pixels(env, 4) == expected
    assert first_pixels(env, 1) == expected[:2]


@pytest.mark.parametrize(
    ("shape", "num_channels"),
    [((9, 7), 1), ((99, 7, 1), 1), ((210, 160, 3), 1), ((84, 84, 2), 2), ((96, 96, 5), 5)],
)
def test_images_of_all_shapes_become_one_array(shape: tuple[int, ...], num_channels: int) -> None:
    env = stacked(Slides(noise(3, *shape)), 84, 4)
    assert env.observation_space == spaces.Box(0, 255, (84, 84, 4 * num_channels), np.uint8)
    assert env.observation_space.contains(env.reset()[0])
    assert env.observation_space.contains(env.step(0)[0])


def test_images_with_their_channels_first_are_those_with_their_channels_last() -> None:
    last = noise(3, 60, 84, 3)
    first = np.ascontiguousarray(np.moveaxis(last, 3, 1))
    one, other = stacked(Slides(first), 36, 2), stacked(Slides(last), 36, 2)
    assert (one.reset()[0] == other.reset()[0]).all()
    assert (one.step(0)[0] == other.step(0)[0]).all()
    gray = noise(3, 1, 60, 84)
    one, other = stacked(Slides(gray), 36, 2), stacked(Slides(gray[:, 0]), 36, 2)
    assert (one.reset()[0] == other.reset()[0]).all()


@pytest.mark.parametrize("num_channels", [4, 12])
def test_a_stack_of_four_with_channels_first_is_not_stacked_again(num_channels: int) -> None:
    frames = noise(2, num_channels, 84, 84)
    env = stacked(Slides(frames), 84, 4)
    assert env.observation_space.shape == (84, 84, num_channels)
    assert (env.reset()[0] == np.moveaxis(frames[0], 0, 2)).all()
    assert (env.step(0)[0] == np.moveaxis(frames[1], 0, 2)).all()


def test_colours_are_kept_if_asked_for_and_stacked_with_the_oldest_first() -> None:
    images = noise(3, 84, 84, 3)
    env = stacked(Slides(images), 84, 2, "color")
    assert env.observation_space.shape == (84, 84, 6)
    assert (env.reset()[0] == np.concatenate([images[0], images[0]], 2)).all()
    assert (env.step(0)[0] == np.concatenate([images[0], images[1]], 2)).all()
    first = stacked(Slides(np.ascontiguousarray(np.moveaxis(images, 3, 1))), 84, 2, "color")
    first.reset()
    assert (first.step(0)[0] == np.concatenate([images[0], images[1]], 2)).all()
    restored = stacked(Slides(images), 84, 2, "color")
    restored.reset()
    restored.restore(np.concatenate([images[2], images[0]], 2))
    assert (restored.step(0)[0] == np.concatenate([images[0], images[1]], 2)).all()


def test_colours_become_gray_by_how_bright_they_look() -> None:
    image = noise(84, 84, 3)
    gray = stacked(Slides([image, image]), 84, 1).reset()[0][:, :, 0]
    assert np.abs(gray - image @ WEIGHTS).max() <= 1


@pytest.mark.parametrize(("height", "width"), [(168, 168), (84, 252)])
def test_a_pixel_is_the_mean_of_those_that_it_replaces(height: int, width: int) -> None:
    image = noise(height, width)
    small = stacked(Slides([image, image]), 84, 1).reset()[0][:, :, 0]
    assert np.abs(small - image.reshape(84, height // 84, 84, width // 84).mean((1, 3))).max() <= 1


@pytest.mark.parametrize("truncates", [False, True])
def test_an_action_is_repeated_to_the_end_of_the_episode_at_most(truncates: bool) -> None:
    env = RepeatAction(Slides(plain(*range(6)), truncates), 4)
    env.reset()
    image, *found = env.step(1)
    assert found == [1 + 2 + 3 + 4, False, False, {"number": 4}]
    assert np.unique(image) == 4
    assert env.step(0)[1:4] == (5, not truncates, truncates)
    assert env.unwrapped.actions == [1, 1, 1, 1, 0]


def test_a_car_race_is_four_gray_images_and_as_many_frames_a_step() -> None:
    env = make_env("CarRacing-v3", frame_skip=4)
    assert env.observation_space == spaces.Box(0, 255, (84, 84, 4), np.uint8)
    first = env.reset(seed=0)[0].copy()
    assert env.observation_space.contains(first)
    start = env.unwrapped.t
    observation = env.step(np.array([0, 1, 0]))[0]
    assert env.unwrapped.t - start == pytest.approx(4 / 50)  # of a second, at 50 frames each
    np.testing.assert_array_equal(observation[:, :, :3], first[:, :, 1:])


def test_an_atari_game_is_seen_in_the_colours_that_it_shows() -> None:
    about = {"frame_stack": 1, "noop_max": 0, "env_kwargs": {"render_mode": "rgb_array"}}
    env = make_env("PongNoFrameskip-v4", image="color", screen_size=210, **about)
    assert env.observation_space == spaces.Box(0, 255, (210, 210, 3), np.uint8)
    for observation in (env.reset(seed=0)[0], env.step(2)[0]):
        shown = cv2.resize(env.render(), (210, 210), interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(observation, shown)


def test_what_only_colours_tell_is_learned_in_color(tmp_path: Path) -> None:
    about = {"image": "color", "frame_stack": 1, "screen_size": 36, "model": "cnn_small"}
    sizes = {"num_envs": 8, "num_steps": 16, "total_steps": 512, "num_workers": 0}
    quiet = {"preset": "none", "verbose": 0, "report": False, "run_dir": tmp_path / "run"}
    summary = train("tests.environments:Lamp", learning_rate=1e-3, **about, **sizes, **quiet)
    assert summary.evaluation.mean > 0.9  # in gray, 0.5
    policy = load_policy(summary.checkpoint, "tests.environments:Lamp")
    assert policy.spaces.observations.shape == (36, 36, 3)
    assert policy.evaluate(20).returns == summary.evaluation.returns


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tests.environments:Lights", "--image=color: no image of tests.environments:Lights has"),
        ("CartPole-v1", "--image means nothing for CartPole-v1"),
    ],
)
def test_colours_are_refused_where_there_are_none(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings_of({"env_name": name, "image": "color", "preset": "none"})


@pytest.mark.slow
def test_a_library_that_opencv_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "cv2.py").write_text("raise ImportError('libGL.so.1: cannot open shared object')")
    flags = ("--env_name=tests.environments:Picture-v0", f"--run_dir={tmp_path / 'run'}")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = run_main(*flags, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith("error: OpenCV cannot be loaded (libGL.so.1")
    assert done.stderr.count("\n") == 1
