"""An environment that fails in every way that the trainer should live through."""

import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 20


def spin() -> None:
    while True:
        pass


def fail() -> None:
    raise RuntimeError("a wheel came off")


ACTS: dict[str, Callable[[], object]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segv": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(3),
    "raise": fail,
    "hang": lambda: time.sleep(1e6),
    "spin": spin,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}
OBSERVATIONS: dict[str, Any] = {
    "nan": np.full(4, np.nan, np.float32),
    "outside": np.full(4, 1e9, np.float32),
}


class Fault(gymnasium.Env):
    """Counts to twenty and fails in worker processes.

    fault: a list like "kill,nan", of which the first happens from a step on, the second from twice
    that step, and so on. Each happens once in all processes of a run, or, if always, every time;
    its time is written to marker.FAULT."""

    observation_space = spaces.Box(-10, 10, (4,))
    action_space = spaces.Discrete(2)

    def __init__(
        self, fault: str = "", step: int = 40, marker: str = "", always: bool = False
    ) -> None:
        self.faults = fault.split(",") if fault and multiprocessing.parent_process() else []
        self.first, self.marker, self.always, self.num_steps = step, marker, always, 0

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.age = 0
        return self._observe(), {}

    def step(self, action: int) -> Any:
        self.age += 1
        self.num_steps += 1
        observation, reward = self._observe(), float(action)
        for number, fault in enumerate(self.faults, 1):
            if self.num_steps >= number * self.first and self._is_due(fault):
                ACTS.get(fault, int)()
                observation = OBSERVATIONS.get(fault, observation)
                if fault == "four_tuple":
                    return observation, reward, False, {}
        return observation, reward, self.age == LENGTH, False, {}

    def _observe(self) -> np.ndarray:
        return (
            np.append(self.np_random.normal(size=3), self.age / LENGTH)
            .clip(-9, 9)
            .astype(np.float32)
        )

    def _is_due(self, fault: str) -> bool:
        """Whether a fault is to happen now; if so it is noted."""
        try:
            with Path(f"{self.marker}.{fault}").open("w" if self.always else "x") as file:
                file.write(str(time.time()))
        except FileExistsError:
            return False
        return True
