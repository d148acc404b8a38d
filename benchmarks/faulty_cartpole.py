"""The environment of benchmarks.soak: CartPole that kills, fails or hangs its worker."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

CAUSES = {  # of the loss of a worker, by what was done to it
    "kill": "SIGKILL",
    "segv": "SIGSEGV",
    "raise": "raised RuntimeError",
    "hang": "hung",
    "nan": "is not finite",
}
LONGEST_EPISODE = 500


class FaultyCartPole(CartPoleEnv):
    """CartPole-v1 that at some steps does one of CAUSES to its worker, having said so in a file.

    The moments are random, not seeded, lest they come again in a rollout that is repeated.
    """

    def __init__(self, probability: float = 0.0, told: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.probability = probability
        self.told = told
        self.steps = 0
        self.random = random.Random()
        self.is_in_worker = multiprocessing.parent_process() is not None

    def reset(self, **options: Any) -> Any:
        self.steps = 0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation, reward, terminated, _, info = super().step(action)
        if self.is_in_worker and self.random.random() < self.probability:
            observation = self.fail(self.random.choice(list(CAUSES)), observation)
        return observation, reward, terminated, self.steps >= LONGEST_EPISODE, info

    def fail(self, kind: str, observation: np.ndarray) -> np.ndarray:
        with Path(self.told).open("a") as file:
            file.write(f"{time.time()} {kind}\n")
        if kind in ("kill", "segv"):
            os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSEGV)
        if kind == "raise":
            raise RuntimeError("a fault that is wanted")
        if kind == "hang":
            time.sleep(3600)
        return np.full_like(observation, np.nan)
