"""An environment that misbehaves in a chosen call, in a chosen process, in a chosen way."""

import ctypes
import json
import os
import signal
import time
from collections.abc import Callable
from multiprocessing import Process, parent_process
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo.envs.heartbeat import HEARTBEAT

LENGTH = 20
DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)


def fail() -> None:
    raise RuntimeError("a wheel came off")


def leave() -> None:
    raise SystemExit(0)


def interrupt() -> None:
    raise KeyboardInterrupt


def hang_in_python() -> None:
    while True:
        time.sleep(0.01)


def flood() -> None:
    os.write(1, 100 * (10_000 * b"x" + b"\n"))


def start_process() -> None:
    """Start a process that goes on until it is terminated."""
    process = Process(target=time.sleep, args=(10_000,))
    process.start()
    process.terminate()
    process.join()


def reset_signals() -> None:
    for number in DEFAULT_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


ACTS: dict[str, Callable[[], object]] = {
    "raise": fail,
    "exit": leave,
    "interrupt": interrupt,
    "segv": lambda: ctypes.string_at(0),
    "hang": hang_in_python,
    "hang_in_c": lambda: ctypes.PyDLL(None).sleep(10_000),  # without releasing the interpreter
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "flood": flood,
    "close_descriptors": lambda: os.closerange(3, 256),
    "chdir": lambda: os.chdir("/"),
    "reset_signals": reset_signals,
    "start_process": start_process,
}
OBSERVATIONS: dict[str, Any] = {
    "nan": np.full(4, np.nan, np.float32),
    "shape": np.zeros(3, np.float32),
    "none": None,
    "float64": np.full(4, 0.5),
    "list": [0.5, 0.5, 0.5, 0.5],
}


def process() -> str:
    """Name the kind of process that this is."""
    if HEARTBEAT.is_watched:
        return "isolated"
    return "worker" if parent_process() else "trainer"


class Misbehaving(gymnasium.Env):
    """Give a reward for action 1, twenty times an episode.

    where: the call that misbehaves, "constructor", "reset", "step", "close" or "render"; what: a
    key of ACTS or OBSERVATIONS, "reward" (an array of one), or "reward_nan"; within: the kind of
    process, or "any"; after: so many such calls in a process are well. The environment variable
    MISBEHAVE, a JSON object, replaces them."""

    where: str
    what: str
    within: str
    after: int

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = spaces.Box(-1, 1, (4,))
    action_space = spaces.Discrete(2)
    num_calls = 0  # of those that may misbehave, in this process

    def __init__(
        self,
        where: str = "",
        what: str = "",
        within: str = "any",
        after: int = 0,
        render_mode: str | None = None,
    ) -> None:
        about = {"where": where, "what": what, "within": within, "after": after}
        vars(self).update(about | json.loads(os.environ.get("MISBEHAVE", "{}")))
        self.render_mode = render_mode
        self.act("constructor")

    def act(self, where: str) -> bool:
        """Misbehave if it is time to; return whether it is."""
        if where != self.where or self.within not in ("any", process()):
            return False
        Misbehaving.num_calls += 1
        if Misbehaving.num_calls <= self.after:
            return False
        ACTS.get(self.what, int)()
        return True

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        return self.observe("reset"), {}

    def step(self, action: int) -> Any:
        self.age += 1
        reward: Any = float(action)
        observation = self.observe("step")
        if self.where == "step" and self.what.startswith("reward"):
            reward = np.array([action]) if self.what == "reward" else float("nan")
        return observation, reward, self.age == LENGTH, False, {}

    def observe(self, where: str) -> Any:
        observation = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        if self.act(where):
            return OBSERVATIONS.get(self.what, observation)
        return observation

    def render(self) -> np.ndarray:
        self.act("render")
        return np.zeros((40, 40, 3), np.uint8)

    def close(self) -> None:
        self.act("close")


class Endless(gymnasium.Env):
    """An episode never ends; each step earns 1."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0, False, False, {}


class Wide(Misbehaving):
    """Actions of 256 bytes; an episode never ends."""

    action_space = spaces.Box(-1, 1, (64,))

    def step(self, action: np.ndarray) -> Any:
        return self.observe("step"), 1.0, False, False, {}


class Nothing(Endless):
    """An observation without numbers."""

    observation_space = spaces.Box(-1, 1, (0,))
