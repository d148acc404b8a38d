"""Small worlds whose right answers are known. Their ids are tests.environments:NAME-v0."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envs.seeding import Stream, integer_seed


class Constant(gymnasium.Env):
    """One state, reward 1, and an end after ten steps: by time limit, or as a termination."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, terminates: bool) -> None:
        self.terminates = terminates

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        self.steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        ended = self.steps == 10
        return np.ones(1, np.float32), 1.0, ended and self.terminates, ended and not self.terminates, {}


class Bandit(gymnasium.Env):
    """A context, drawn anew for each episode of one step; the action of the same number earns 1."""

    observation_space = spaces.Box(0, 1, (3,))
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.context = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.context], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(3, np.float32), float(action == self.context), True, False, {}


class Counting(gymnasium.Env):
    """Observes (episode's seed mod 2**16, step of the episode); an episode lasts 3 to 9 steps, by its seed.

    The reward repeats the action, so that a transition whose action was taken elsewhere would show. Episodes of an
    even seed are truncated, the others terminated.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(5, start=10)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        assert seed is not None
        self.seed, self.steps = seed % 2**16, 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        self.steps += 1
        ended = self.steps == 3 + self.seed % 7
        return self._observe(), float(action), ended and self.seed % 2 == 1, ended and self.seed % 2 == 0, {}

    def _observe(self) -> np.ndarray:
        return np.array([self.seed, self.steps], np.float64)


class Picture(gymnasium.Env):
    """Episodes of one step: the lighter half of the picture, left (0) or right (1), is the right action."""

    observation_space = spaces.Box(0, 255, (48, 48, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.lighter = int(self.np_random.integers(2))
        picture = self.np_random.integers(0, 100, self.observation_space.shape, np.uint8)
        picture[:, 24 * self.lighter : 24 * self.lighter + 24] += 100
        return picture, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        picture = np.zeros(self.observation_space.shape, np.uint8)
        return picture, float(action == self.lighter), True, False, {}


class ChannelsFirst(gymnasium.Env):
    observation_space = spaces.Box(0, 255, (3, 64, 64), np.uint8)
    action_space = spaces.Discrete(2)


class SameInfo(Constant):
    """Gives out the same info at every step."""

    def __init__(self) -> None:
        super().__init__(terminates=True)
        self.info: dict = {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return *super().step(action)[:4], self.info


class Target(gymnasium.Env):
    """Episodes of one step in a box of an odd shape: the nearer the action to 0.5 everywhere, the better."""

    observation_space = spaces.Box(-1, 1, (2, 2))
    action_space = spaces.Box(np.float32([[0, -1]]), np.float32([[1, 1]]))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        return np.ones((2, 2), np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        return np.ones((2, 2), np.float32), -float(np.abs(action - 0.5).sum()), True, False, {}


class Faulty(Counting):
    """Raises or is killed in its fortieth step, or raises in its first reset, in evaluation, or when it is made."""

    def __init__(self, fault: str) -> None:
        if fault == "make":
            raise ValueError("no licence")
        self.fault, self.lifetime = fault, 0

    def reset(self, **arguments: Any) -> tuple[np.ndarray, dict]:
        if self.fault == "reset":
            raise ValueError("no reset today")
        if self.fault == "evaluation" and arguments["seed"] == integer_seed(0, Stream.EVALUATION, 0):
            raise ValueError("not in public")
        return super().reset(**arguments)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.lifetime += 1
        if self.lifetime == 40 and self.fault == "raise":
            raise ValueError("a wheel came off")
        if self.lifetime == 40 and self.fault == "kill":
            import os
            import signal

            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Endless(Constant):
    """A step of reward 1 after another, for ever, and an observation without dimensions."""

    observation_space = spaces.Box(0, 1, ())

    def __init__(self) -> None:
        pass

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        return np.float32(1), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.float32(1), 1.0, False, False, {}


for name, entry_point, arguments in (
    ("Truncated-v0", Constant, {"terminates": False}),
    ("Terminated-v0", Constant, {"terminates": True}),
    ("Bandit-v0", Bandit, {}),
    ("Counting-v0", Counting, {}),
    ("Target-v0", Target, {}),
    ("Picture-v0", Picture, {}),
    ("ChannelsFirst-v0", ChannelsFirst, {}),
    ("SameInfo-v0", SameInfo, {}),
    ("GridDeterministic-v0", Counting, {}),
    ("Raises-v0", Faulty, {"fault": "raise"}),
    ("Killed-v0", Faulty, {"fault": "kill"}),
    ("BadReset-v0", Faulty, {"fault": "reset"}),
    ("BadEvaluation-v0", Faulty, {"fault": "evaluation"}),
    ("BadMake-v0", Faulty, {"fault": "make"}),
    ("Endless-v0", Endless, {}),
):
    gymnasium.register(name, entry_point=entry_point, kwargs=arguments)
