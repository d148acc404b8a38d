"""Environments of which the best return, or the value of each observation, is known.
python worlds.py RUN WORLD OPTIONS: play one by the policy of a run."""

import json
import sys
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

from ppo import Callback

Info = dict[str, Any]


class World(gymnasium.Env[Any, Any]):
    """Episodes of some steps. show() returns an observation, judge(action) a reward."""

    observation_space: Any = spaces.Box(-1, 1, (2,))
    action_space: Any = spaces.Discrete(2)

    def __init__(self, length: int = 1, truncates: bool = False) -> None:
        self.length = length
        self.truncates = truncates

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.time = 0
        return self.show(), self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        assert self.action_space.contains(action), f"{action} is not in {self.action_space}"
        reward = self.judge(action)
        self.time += 1
        is_over = self.time >= self.length
        ends = (is_over and not self.truncates, is_over and self.truncates)
        return self.show(), reward, *ends, self.info()

    def info(self) -> Info:
        return {}

    def draw_bit(self) -> int:
        return int(self.np_random.integers(2))


class Clock(World):
    """Shows the time, or always the same, and pays 1 for each step."""

    def __init__(self, tells_time: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.tells_time = tells_time

    def show(self) -> Any:
        return np.float32([1, self.time / 8 if self.tells_time else 0])

    def judge(self, action: Any) -> float:
        return 1.0


IMAGE = spaces.Box(0, 255, (40, 40, 3), np.uint8)
NUMBER = spaces.Box(-np.inf, np.inf, (1,), np.float64)
SHOWN: dict[str, spaces.Space[Any]] = {
    **dict.fromkeys(("number", "far"), NUMBER),
    "image": IMAGE,
    "dict": spaces.Dict({"camera": IMAGE, "arm": spaces.Dict({"angle": NUMBER})}),
    "tuple": spaces.Tuple((spaces.Discrete(2, start=5), spaces.MultiBinary(1), NUMBER)),
}
ANSWERS: dict[str, spaces.Space[Any]] = {
    "choice": spaces.Discrete(3, start=-1),
    "choices": spaces.MultiDiscrete([3, 2]),
    "switches": spaces.MultiBinary(3),
    "numbers": spaces.Box(-1, 1, (2,)),
    "far": spaces.Box(300, 500, (2,)),
    "odd": spaces.Box(np.float32([[0, -1, 4]]), np.float32([[0.5, 9, 6]])),
}


def picture(bit: int) -> np.ndarray:
    """Return an image whose left or right half is lighter."""
    pixels = np.full(IMAGE.shape, 50, np.uint8)
    pixels[:, 20 * bit : 20 * bit + 20] += 200
    return pixels


def likeness(space: Any, given: Any, bit: Any) -> float:
    """Return 1 for the right one of two members of a space, less for each part of another."""
    if isinstance(space, spaces.Box):
        place = (given - space.low) / (space.high - space.low)
        return float(1 - 2 * np.abs(place - 0.25 - 0.5 * bit).mean())
    if isinstance(space, spaces.MultiBinary):
        return float(np.mean(given == bit))
    sizes = space.n if isinstance(space, spaces.Discrete) else space.nvec
    return float(np.mean(given == space.start + bit * (sizes - 1)))


class Echo(World):
    """Shows a bit, or one for each of two choices; the answer earns 1."""

    def __init__(self, shows: str = "number", answer: str = "choice", **options: Any) -> None:
        super().__init__(**options)
        self.kind = shows
        self.observation_space = SHOWN[shows]
        self.action_space = ANSWERS[answer]

    def show(self) -> Any:
        bit, other = self.draw_bit(), self.draw_bit()
        self.right = np.array([bit, other]) if self.kind in ("dict", "tuple") else bit
        if self.kind == "image":
            return picture(bit)
        if self.kind == "dict":
            return {"camera": picture(bit), "arm": {"angle": np.float64([2 * other - 1])}}
        if self.kind == "tuple":
            return 5 + bit, np.int8([other]), np.zeros(1)
        zero = 1.7e9 if self.kind == "far" else 0  # seconds of Unix time
        return np.float64([zero + 2 * bit - 1])

    def judge(self, action: Any) -> float:
        return likeness(self.action_space, action, self.right)


class Masked(World):
    """Allows two of four choices, of which the one that is shown earns 1; the others cost 10."""

    action_space = spaces.MultiDiscrete([4, 2])

    def __init__(self, tells: bool = True) -> None:
        super().__init__()
        self.tells = tells

    def show(self) -> Any:
        self.bit = self.draw_bit()
        first = 2 * self.draw_bit()
        self.allowed = np.ones(6, np.int8)
        self.allowed[first : first + 2] = 0
        return np.float32([self.bit, 1])

    def info(self) -> Info:
        return {"action_mask": self.allowed if self.tells else np.ones(6, np.int8)}

    def judge(self, action: Any) -> float:
        is_right = action[0] % 2 == self.bit and action[1] != self.bit
        return float(is_right) if self.allowed[action[0]] else -10.0


class Cue(World):
    """Shows a bit at the start, and asks for it in the last step."""

    def show(self) -> Any:
        self.bit = self.bit if self.time else self.draw_bit()
        return np.float32([0 if self.time else 2 * self.bit - 1, self.time == self.length - 1])

    def judge(self, action: Any) -> float:
        return float(self.time == self.length - 1 and action == self.bit)


class Moving(World):
    """Shows a place; in each step but the first, the direction of the last move earns 1."""

    observation_space = spaces.Box(-12, 12, (1,))

    def show(self) -> Any:
        self.direction = self.draw_bit()
        before = self.place if self.time else self.np_random.uniform(-3, 3)
        self.place = before + 2 * self.direction - 1
        return np.float32([self.place])

    def judge(self, action: Any) -> float:
        return float(self.time > 0 and action == self.direction)


class Goal(World):
    """Pays 1 for the action that an attribute says, which is not shown; at first for none."""

    goal = 2

    def show(self) -> Any:
        return np.float32([self.draw_bit(), 1])

    def judge(self, action: Any) -> float:
        return float(action == self.goal)


class Move(Callback):
    """Set another goal after some iterations."""

    def on_iteration(self, run: Any) -> None:
        if run.iteration == 3:
            run.set_env(goal=1)


class Plain(VectorWrapper):
    """A vector environment that hides what it is, but for its autoreset mode, and whose arrays are
    those of a library."""

    unwrapped = property(lambda self: self)

    def __init__(self, env: Any, library: str) -> None:
        super().__init__(env)
        self.array = import_module(library).asarray

    def reset(self, **options: Any) -> tuple[Any, Info]:
        observations, infos = self.env.reset(**options)
        return self.array(observations), infos

    def step(self, actions: Any) -> Any:
        *tables, infos = self.env.step(np.asarray(actions))
        return *map(self.array, tables), infos


def together(num_envs: int, world: str, mode: str, library: str = "numpy", **options: Any) -> Any:
    """Make a vector environment: of an autoreset mode, or gymnasium's own as it is by default."""
    made = [partial(globals()[world], **options)] * num_envs
    if mode == "own":
        return SyncVectorEnv(made)
    return Plain(SyncVectorEnv(made, autoreset_mode=AutoresetMode(mode)), library)


class Team:
    """A ParallelEnv of PettingZoo: three agents, of whom one leaves early, and one comes late.

    Each is paid 1 in each step for the bit that it is shown then, or was shown in its first step.
    """

    possible_agents = ("early", "middle", "late")
    lives = {"early": (0, 2), "middle": (0, 7), "late": (3, 6)}  # noqa: RUF012
    metadata: dict[str, Any] = {}  # noqa: RUF012
    unwrapped = property(lambda self: self)

    def __init__(self, needs_memory: bool = False) -> None:
        self.needs_memory = needs_memory

    def observation_space(self, agent: str) -> Any:
        return World.observation_space

    def action_space(self, agent: str) -> Any:
        return World.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.random = np.random.default_rng(seed)
        self.right: dict[str, int] = {}
        self.begin_step(0)
        return {x: self.show(x) for x in self.agents}, {x: {} for x in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        assert {*actions} == {*self.agents}, "absent agents do not act"
        paid = {x: float(action == self.right[x]) for x, action in actions.items()}
        self.begin_step(self.time + 1)
        is_over = {x: x not in self.agents for x in actions}
        shown = [x for x in self.possible_agents if x in {*actions, *self.agents}]
        observations = {x: self.show(x) for x in shown}
        return observations, paid, is_over, dict.fromkeys(actions, False), {x: {} for x in shown}

    def begin_step(self, time: int) -> None:
        self.time = time
        self.agents = [x for x, life in self.lives.items() if time in range(*life)]

    def show(self, agent: str) -> np.ndarray:
        is_first = self.time == self.lives[agent][0]
        if self.needs_memory and not is_first:
            return np.zeros(2, np.float32)
        self.right[agent] = int(self.random.integers(2))
        return np.float32([2 * self.right[agent] - 1, is_first])

    def close(self) -> None:
        """Do nothing."""


def play(run: str, world: World, episodes: int = 20) -> tuple[float, list[float]]:
    """Return the mean return of a policy's most likely actions, and the values of an episode."""
    from ppo import load_policy  # imports torch

    policy = load_policy(run)
    total = 0.0
    values: list[float] = []
    for seed in range(episodes):
        policy.reset()
        observation, info = world.reset(seed=seed)
        for _ in range(20):
            if isinstance(world, Clock) and not seed:
                values.append(float(policy.values(observation[None])[0]))
            action = policy.predict(observation, info=info)
            observation, reward, terminated, truncated, info = world.step(action)
            total += reward
            if terminated or truncated:
                break
    return total / episodes, values


if __name__ == "__main__":
    run, name, options = sys.argv[1:]
    print(json.dumps(play(run, globals()[name](**json.loads(options)))))
