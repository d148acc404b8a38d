"""Joined observations against windows of what the environment showed."""

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo.envs.frame_skip import RepeatAction, stack_vectors
from tests.running import make_env


class Reused(gymnasium.Env):
    """Show the step and its square, in an array that is reused."""

    observation_space = spaces.Box(np.float32([0, -1]), np.float32([9, 1]))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        self.shown = np.zeros(2, np.float32)
        return self.shown, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.shown += [1, 0]
        return self.shown, 1.0, False, False, {}


class Doubling(gymnasium.Env):
    """Doubles the actions that it is given, in place."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Dict(arm=spaces.Box(-1, 1, (2,)))

    def __init__(self) -> None:
        self.done: list[list[float]] = []

    def step(self, action: dict) -> tuple[np.ndarray, float, bool, bool, dict]:
        action["arm"] *= 2
        self.done.append(action["arm"].tolist())
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_an_environment_may_change_the_actions_that_are_repeated() -> None:
    action = {"arm": np.float32([0.5, -0.25])}
    env = RepeatAction(Doubling(), 3)
    env.step(action)
    assert env.unwrapped.done == [[1, -0.5]] * 3
    assert action["arm"].tolist() == [0.5, -0.25]


def test_the_oldest_is_first_and_after_a_reset_all_are_the_same() -> None:
    env = stack_vectors(Reused(), 3)
    space = env.observation_space
    assert isinstance(space, spaces.Box)
    np.testing.assert_array_equal(space.high, [9, 1, 9, 1, 9, 1])
    np.testing.assert_array_equal(space.low, [0, -1, 0, -1, 0, -1])
    for _ in range(2):
        np.testing.assert_array_equal(env.reset()[0], np.zeros(6))
        seen = [env.step(0)[0] for _ in range(3)]
        np.testing.assert_array_equal(seen[0], [0, 0, 0, 0, 1, 0])
        np.testing.assert_array_equal(seen[2], [1, 0, 2, 0, 3, 0])


def test_observations_without_images_are_joined_after_they_are_flattened() -> None:
    assert make_env("tests.environments:Picture-v0").observation_space.shape == (84, 84, 4)
    assert make_env("CartPole-v1").observation_space.shape == (4,)
    assert make_env("CartPole-v1", frame_stack=5).observation_space.shape == (20,)
    shapes = [make_env("Taxi-v4", frame_stack=n).observation_space.shape for n in (1, 2)]
    assert shapes == [(500,), (1000,)]
