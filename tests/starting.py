"""An environment that starts processes, in every way that Python has."""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 20
AGES = [f"{age}\n".encode() for age in range(LENGTH + 1)]
# It goes on for a minute when nobody asks any more.
ECHO = "import sys, time\nfor line in sys.stdin: print(line, end='', flush=True)\ntime.sleep(60)"


def half(age: int) -> float:
    return age / 2


def answer(end: Any) -> None:
    for age in iter(end.recv, None):
        end.send(half(age))


class ByProcess:
    """A process that answers until it is terminated, or until nobody asks."""

    def __init__(self, method: str | None) -> None:
        context: Any = multiprocessing.get_context(method) if method else multiprocessing
        self.end, theirs = context.Pipe()
        self.process = context.Process(target=answer, args=(theirs,))
        self.process.start()
        theirs.close()

    def half(self, age: int) -> float:
        self.end.send(age)
        return self.end.recv()

    def close(self) -> None:
        self.process.terminate()
        self.process.join()


class ByPool:
    def __init__(self, method: str | None) -> None:
        self.pool = multiprocessing.get_context(method).Pool(1)

    def half(self, age: int) -> float:
        return self.pool.apply(half, (age,))

    def close(self) -> None:
        self.pool.terminate()
        self.pool.join()


class ByExecutor:
    def __init__(self, method: str | None) -> None:
        self.executor = ProcessPoolExecutor(1, multiprocessing.get_context(method))

    def half(self, age: int) -> float:
        return self.executor.submit(half, age).result()

    def close(self) -> None:
        self.executor.shutdown()


class BySubprocess:
    def __init__(self, method: str | None) -> None:
        command = [sys.executable, "-c", ECHO]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe)

    def half(self, age: int) -> float:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(AGES[age])
        self.process.stdin.flush()
        return int(self.process.stdout.readline()) / 2

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate()


KINDS: dict[str, Callable[[str | None], Any]] = {
    "process": ByProcess,
    "pool": ByPool,
    "executor": ByExecutor,
    "subprocess": BySubprocess,
}


class Starting(gymnasium.Env):
    """Count to twenty, of which half is computed by another process.

    by: a key of KINDS; method: of multiprocessing, its default if there is none; call: which starts
    the process, "init", "reset" or "step"; hang_at: this process stops at that step, once: it
    creates the file marker; is_closed: whether close ends the process."""

    observation_space = spaces.Box(-20, 20, (2,))
    action_space = spaces.Discrete(2)

    def __init__(
        self,
        by: str = "process",
        method: str | None = None,
        call: str = "init",
        *,
        hang_at: int = 0,
        marker: str = "",
        is_closed: bool = True,
    ) -> None:
        self.by, self.method, self.call = by, method, call
        self.hang_at, self.marker, self.is_closed = hang_at, marker, is_closed
        self.helper: Any = None
        self.num_steps = 0
        self.start_in("init")

    def start_in(self, call: str) -> None:
        if call == self.call and not self.helper:
            self.helper = KINDS[self.by](self.method)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.start_in("reset")
        self.age = 0
        return self.observe(), {}

    def step(self, action: int) -> Any:
        self.start_in("step")
        self.age += 1
        self.num_steps += 1
        if self.num_steps == self.hang_at and not Path(self.marker).exists():
            Path(self.marker).write_text(str(os.getpid()))
            time.sleep(1e6)
        return self.observe(), float(action), self.age == LENGTH, False, {}

    def observe(self) -> np.ndarray:
        other = self.helper.half(self.age) if self.helper else 0.0
        return np.array([self.np_random.normal(), other], np.float32)

    def close(self) -> None:
        if self.helper and self.is_closed:
            self.helper.close()
        self.helper = None


class Slow(gymnasium.Env):
    """A step takes a fifth of a second, in many small pieces."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample() * 0, {}

    def step(self, action: int) -> Any:
        for _ in range(40):
            time.sleep(0.005)
        observation = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return observation, float(action), False, False, {}
