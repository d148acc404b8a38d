"""Small environments whose right answers are known."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy import ndarray

Result = tuple[Any, float, bool, bool, dict[str, Any]]


class Counting(gymnasium.Env):
    """Observes (episode's seed mod 2**16, step of the episode).

    An episode lasts 3 to 9 steps, by its seed; it is truncated if that is even, else terminated.
    The reward repeats the action, so that an action of another transition would show."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space: Any = spaces.Discrete(5, start=10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        assert seed is not None
        self.seed, self.steps = seed % 2**16, 0
        return self.observe(), {}

    def step(self, action: Any) -> Result:
        assert self.action_space.contains(action)
        self.steps += 1
        ended, is_even = self.steps == 3 + self.seed % 7, self.seed % 2 == 0
        return self.observe(), float(action), ended and not is_even, ended and is_even, {}

    def observe(self) -> Any:
        return np.array([self.seed, self.steps], np.float64)


class Reusing(Counting):
    """Observes by one array, which it changes."""

    shown = np.zeros(2)

    def observe(self) -> ndarray:
        self.shown[:] = super().observe()
        return self.shown


class Film(Counting):
    """Observes an image, as bright as the step of the episode."""

    observation_space = spaces.Box(0, 255, (40, 44), np.uint8)

    def observe(self) -> ndarray:
        return np.full((40, 44), self.steps, np.uint8)


class Constant(gymnasium.Env):
    """Shows 1 and earns 1; episodes of ten steps are truncated."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Result:
        self.steps += 1
        return np.ones(1, np.float32), 1.0, False, self.steps == 10, {}


class Numbers(Constant):
    """Acts in a box of an odd shape; earns what the action is, within its bounds."""

    action_space = spaces.Box(np.float32([[0, -1]]), np.float32([[1, 1]]))

    def step(self, action: Any) -> Result:
        assert self.action_space.contains(action)
        _, _, *ended = super().step(action)
        return np.ones(1, np.float32), float(action.sum()), *ended


class Masked(Constant):
    """Allows two neighbours of four actions, drawn at each step; a forbidden one raises."""

    observation_space = spaces.Box(0, 9, (1,))
    action_space = spaces.Discrete(4, start=-1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), self.allow()

    def step(self, action: Any) -> Result:
        assert self.allowed[action + 1], "a forbidden action"
        self.steps += 1
        shown = np.full(1, self.steps, np.float32)
        return shown, 1.0, self.steps == 7, False, self.allow()

    def allow(self) -> dict[str, Any]:
        self.allowed = np.repeat(np.eye(2, dtype=np.int8)[int(self.np_random.integers(2))], 2)
        return {"action_mask": self.allowed}


class Unseeded(Constant):
    """Ignores its seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset()
        self.shown = np.random.default_rng().random(1).astype(np.float32)
        return self.shown, {}

    def step(self, action: Any) -> Result:
        return self.shown, *super().step(action)[1:]


class Fragile(Counting):
    """Kills its process in a step of the environment 3, once a file says so."""

    def __init__(self, index: int, place: str) -> None:
        self.index, self.place = index, Path(place)

    def step(self, action: Any) -> Result:
        results = super().step(action)
        if self.index == 3 and self.place.exists() and self.steps == 2:
            self.place.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return results


class Imports(Constant):
    """Reports which modules its process has loaded, and what processes would inherit from it."""

    def step(self, action: Any) -> Result:
        *results, _ = super().step(action)
        found = {name: float(name in sys.modules) for name in ("torch", "cv2", "ale_py")}
        return *results, {**found, "variable": float("PYTHONSAFEPATH" in os.environ)}
