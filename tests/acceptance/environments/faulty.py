"""Environments that fail in a chosen call, in a chosen way. Imports no torch.

FAULT, in the environment of all processes of a run, such as "step raise 4": a step raises once
metrics.csv has 4 rows (as many as it will have: in the last evaluation); "always": each does."""

import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

RUN = Path.cwd() / "run"
TRAINER = (multiprocessing.parent_process() or multiprocessing.current_process()).pid or 0
PAUSE = f"sleep 0.2; kill -STOP {TRAINER} {os.getpid()}; sleep 2.5; kill -CONT {TRAINER};"
LENGTH = 20  # of episodes, whose last step has a place of its own

RAISED = {
    "raise": RuntimeError("a wheel came off"),
    "odd": BaseException("\x1b[2Ja wheel came off \udc80" + "!" * 20_000),
    "unpicklable": ValueError("a wheel", lambda: "came off"),
    "interrupt": KeyboardInterrupt("a wheel came off"),
    "exit": SystemExit(0),
    "full": OSError(28, "No space left on device"),
}
DONE: dict[str, Callable[[], object]] = {
    "quit": lambda: os._exit(3),
    "sleep": lambda: time.sleep(1e6),
    "hang": lambda: (send("SIGTERM"), DONE["sleep"]()),
    "spin": lambda: any(iter(int, 1)),  # without letting go of the interpreter
    "recurse": lambda: DONE["recurse"](),
    "orphan": lambda: subprocess.Popen(["sleep", "1000"]),
    "orphan_quit": lambda: (subprocess.Popen(["sleep", "1000"]), os._exit(3)),
    "start": lambda: multiprocessing.Process(target=int).start(),
    "close": lambda: os.closerange(3, 256),
    "chdir": lambda: os.chdir("/"),
    "flood": lambda: os.write(1, 100 * (10_000 * b"x" + b"\n")),
    "pause": lambda: subprocess.run(["sh", "-c", f"{PAUSE} sleep 0.2; kill -CONT {os.getpid()}"]),
}
OBSERVATION, REWARD, INFO = 0, 1, -1
# What is returned in place of one of the results of a step or a reset.
CHANGED: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "nan": (OBSERVATION, lambda seen: seen * np.float32("nan")),
    "huge": (OBSERVATION, lambda seen: np.full(seen.shape, 1e300)),
    "scalar": (OBSERVATION, lambda seen: 0.5),
    "one": (OBSERVATION, lambda seen: seen[..., :1]),
    "three": (OBSERVATION, lambda seen: seen[..., :3]),
    "none": (OBSERVATION, lambda seen: None),
    "rows": (OBSERVATION, lambda seen: seen[1:]),
    "reward_nan": (REWARD, lambda reward: reward * np.float64("nan")),
    "reward_none": (REWARD, lambda reward: None),
    "reward_two": (REWARD, lambda reward: np.ones(2)),
    "reward_rows": (REWARD, lambda reward: reward[1:]),
    "mask_three": (INFO, lambda info: {"action_mask": np.ones(3, np.int8)}),
    "mask_empty": (INFO, lambda info: {"action_mask": np.zeros(2, np.int8)}),
}


class Fault:
    """What FAULT says, for the calls of one object."""

    num_calls = 0

    def act(self, place: str, *results: Any) -> Any:
        """Do what is to happen in a call, if anything; return its results, changed if so."""
        what = self.due(place)
        if what in RAISED:
            raise RAISED[what]
        if what.startswith("SIG"):
            send(*what.split(":"))
        if what in CHANGED:
            number, change = CHANGED[what]
            values = list(results)
            values[number] = change(values[number])
            return tuple(values)
        DONE.get(what, int)()
        return {"four": results[1:], "nothing": None}.get(what, results)

    def due(self, place: str) -> str:
        """Return what is to happen in a call, "" for nothing."""
        wanted, what, num_rows, *always = os.environ.get("FAULT", "").split() or ("", "", "0")
        path = RUN / "metrics.csv"
        rows = path.read_text().count("\n") - 1 if path.exists() else -1
        if place != wanted or rows < int(num_rows):
            return ""
        self.num_calls += 1
        if place == "step" and int(num_rows) > 0 and self.num_calls <= 5:
            return ""  # so that a part of a rollout is lost
        try:
            RUN.with_name("fault").touch(exist_ok=bool(always))
        except FileExistsError:
            return ""
        return what


def send(names: str, receiver: str = "trainer") -> None:
    """Send signals, and wait for what they do. receiver: trainer, own (this process) or all."""
    pids = {"trainer": [TRAINER], "own": [os.getpid()], "all": [TRAINER, os.getpid()]}
    for name in names.split(","):
        for pid in pids[receiver]:
            os.kill(pid, signal.Signals[name])
        time.sleep(0.3)


class Faulty(gymnasium.Env[np.ndarray, int]):
    """Pays for action 1; an episode is truncated after twenty steps."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(-1, 1, (4,))
    action_space = gymnasium.spaces.Discrete(2)
    infos: ClassVar[dict[str, Any]] = {}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.fault = Fault()
        self.fault.act("init")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        return self.fault.act("reset", self.observe(), self.infos)

    def step(self, action: int) -> Any:
        self.age += 1
        is_last = self.age == LENGTH
        results = (self.observe(), float(action), False, is_last, self.infos)
        return self.fault.act("last" if is_last else "step", *results)

    def observe(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)

    def close(self) -> None:
        self.fault.act("close")

    def render(self) -> np.ndarray:
        self.fault.act("render")
        return np.zeros((32, 32, 3), np.uint8)


class Masked(Faulty):
    infos: ClassVar = {"action_mask": np.ones(2, np.int8)}


class Vector(SyncVectorEnv):
    def __init__(self, num_envs: int) -> None:
        super().__init__([Faulty] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.fault = Fault()

    def step(self, actions: Any) -> Any:
        return self.fault.act("batch", *super().step(actions))


class Team:  # of two agents who see the same, with the interface of PettingZoo
    possible_agents = ("left", "right")
    render_mode = None

    def __init__(self) -> None:
        self.env = self.unwrapped = Faulty()
        self.agents: tuple[str, ...] = ()

    def observation_space(self, agent: str) -> Any:
        return Faulty.observation_space

    def action_space(self, agent: str) -> Any:
        return Faulty.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = self.possible_agents
        return [dict.fromkeys(self.agents, x) for x in self.env.reset(seed=seed)]

    def step(self, actions: dict[str, int]) -> Any:
        results = self.env.step(actions["left"])
        if self.env.age == LENGTH:
            self.agents = ()
        return [dict.fromkeys(actions, x) for x in results]

    def close(self) -> None:
        pass
