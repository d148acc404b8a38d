"""Small environments whose right answers are known, with ids tests.environments:NAME-v0."""

import multiprocessing
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Constant(gymnasium.Env):
    """One state, reward 1, and an end after ten steps: by time limit, or as a termination."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, terminates: bool) -> None:
        self.terminates = terminates

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        self.steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        ended = self.steps == 10
        return (
            np.ones(1, np.float32),
            1.0,
            ended and self.terminates,
            ended and not self.terminates,
            {},
        )


class Bandit(gymnasium.Env):
    """A context, drawn anew for each episode of one step; the action of the same number earns 1."""

    observation_space = spaces.Box(0, 1, (3,))
    action_space = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.context = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.context], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(3, np.float32), float(action == self.context), True, False, {}


class Counting(gymnasium.Env):
    """Observes (episode's seed mod 2**16, step of the episode).

    An episode lasts 3 to 9 steps, by its seed; it is truncated if that is even, else terminated.
    The reward repeats the action, so that an action of another transition would show."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(5, start=10)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        assert seed is not None
        self.seed, self.steps = seed % 2**16, 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        self.steps += 1
        ended = self.steps == 3 + self.seed % 7
        return (
            self._observe(),
            float(action),
            ended and self.seed % 2 == 1,
            ended and self.seed % 2 == 0,
            {},
        )

    def _observe(self) -> np.ndarray:
        return np.array([self.seed, self.steps], np.float64)


class Picture(gymnasium.Env):
    """Episodes of one step: the right action is the lighter half, left (0) or right (1)."""

    observation_space = spaces.Box(0, 255, (48, 48, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.lighter = int(self.np_random.integers(2))
        picture = self.np_random.integers(0, 100, self.observation_space.shape, np.uint8)
        picture[:, 24 * self.lighter : 24 * self.lighter + 24] += 100
        return picture, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        picture = np.zeros(self.observation_space.shape, np.uint8)
        return picture, float(action == self.lighter), True, False, {}


class Lamp(gymnasium.Env):
    """Shows a red or a green lamp, equally bright; the right action is 0 for red, 1 for green."""

    observation_space = spaces.Box(0, 255, (40, 40, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.is_green = int(self.np_random.integers(2))
        picture = np.zeros(self.observation_space.shape, np.uint8)
        picture[:] = [0, 100, 0] if self.is_green else [196, 0, 0]
        return picture, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        picture = np.zeros(self.observation_space.shape, np.uint8)
        return picture, float(action == self.is_green), True, False, {}


class SameInfo(Constant):
    """Gives out the same info at every step."""

    def __init__(self) -> None:
        super().__init__(terminates=True)
        self.info: dict = {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return *super().step(action)[:4], self.info


class Target(gymnasium.Env):
    """Episodes of one step in a box of an odd shape: the best action is 0.5 everywhere."""

    observation_space = spaces.Box(-1, 1, (2, 2))
    action_space = spaces.Box(np.float32([[0, -1]]), np.float32([[1, 1]]))

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        return np.ones((2, 2), np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        return np.ones((2, 2), np.float32), -float(np.abs(action - 0.5).sum()), True, False, {}


class Endless(Constant):
    """A step of reward 1 after another, for ever, and an observation without dimensions."""

    observation_space = spaces.Box(0, 1, ())

    def __init__(self) -> None:
        pass

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        return np.float32(1), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.float32(1), 1.0, False, False, {}


SPACES: dict[str, Any] = {
    "Discrete": spaces.Discrete(3),
    "Box": spaces.Box(-1, 1, (2,)),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(3),
    "From1": spaces.Discrete(3, start=1),
    "Grid": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [2, 3]]),
    "Unbounded": spaces.Box(-np.inf, np.inf, (1, 2), np.float64),
    "Integers": spaces.Box(-3, 3, (2,), np.int32),
    "Dict": spaces.Dict(
        {"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, (1,)), "c": spaces.MultiBinary(2)}
    ),
    "Tuple": spaces.Tuple((spaces.Discrete(3), spaces.Dict({"x": spaces.Box(-1, 1, (1,))}))),
    "Arms": spaces.Dict(
        {"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(2), "c": spaces.Box(-1, 1, (1,))}
    ),
    "NumpyCategorical": spaces.Tuple((spaces.Discrete(3), spaces.MultiDiscrete([2, 2]))),
}


def point(space: Any, bit: int) -> Any:
    """One of two members of a space."""
    if isinstance(space, spaces.Dict):
        return {key: point(part, bit) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(point(part, bit) for part in space)
    if isinstance(space, spaces.Discrete):
        return space.start + bit * (space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start + bit * (space.nvec - 1)
    numbers = (2 * bit - 1) / 2 if space.dtype.kind == "f" else bit
    return np.full(space.shape, numbers, space.dtype)


def likeness(space: Any, one: Any, other: Any) -> float:
    """1 for the same; for numbers less their mean distance, for choices the share that agrees."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        keys = list(space) if isinstance(space, spaces.Dict) else range(len(space))
        return float(np.mean([likeness(space[key], one[key], other[key]) for key in keys]))
    is_box = isinstance(space, spaces.Box)
    return float(np.mean(1 - np.abs(one - other) if is_box else np.equal(one, other)))


class Identity(gymnasium.Env):
    """Shows one of two members of a space; the best action is the same member of another space.

    It earns 1, all others less. Episodes last five steps."""

    def __init__(self, shown: str, done: str) -> None:
        self.observation_space, self.action_space = SPACES[shown], SPACES[done]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        reward = likeness(self.action_space, action, point(self.action_space, self.bit))
        self.steps += 1
        return self._show(), reward, self.steps == 5, False, {}

    def _show(self) -> Any:
        self.bit = int(self.np_random.integers(2))
        return point(self.observation_space, self.bit)


class Masked(Identity):
    """Allows only the first two or the last two of four actions; the one that is shown earns 1.

    A forbidden action ends the run."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = SPACES["Discrete"], spaces.Discrete(4, start=-1)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        observation, _ = super().reset(seed=seed)
        return observation, self._allow()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        assert self.allowed[action + 1], "a forbidden action"
        reward = float((action + 1) % 2 == self.bit)
        self.steps += 1
        return self._show(), reward, self.steps == 5, False, self._allow()

    def _allow(self) -> dict:
        self.allowed = np.repeat(np.eye(2, dtype=np.int8)[int(self.np_random.integers(2))], 2)
        return {"action_mask": self.allowed}


class MaskedPair(Identity):
    """Forbids one of the three values of the first of two choices, drawn anew at each step."""

    def __init__(self) -> None:
        super().__init__("Box", "MultiDiscrete")

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        return super().reset(seed=seed)[0], self._allow()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.allowed[action[0]], "a forbidden action"
        return *super().step(action)[:4], self._allow()

    def _allow(self) -> dict:
        self.allowed = np.ones(5, np.int8)
        self.allowed[self.np_random.integers(3)] = 0
        return {"action_mask": self.allowed}


class Camera(gymnasium.Env):
    """Shows a picture, numbers, one of which grows without bounds, and a choice.

    Where the choice is 0, the right action is the lighter half of the picture, left (0) or right
    (1); where it is 1, the other half. Episodes last five steps."""

    observation_space = spaces.Dict(
        {
            "distance": spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "picture": spaces.Box(0, 255, (48, 40, 3), np.uint8),
            "switch": spaces.Discrete(2),
        }
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        reward = float(action == (self.lighter ^ self.switch))
        self.steps += 1
        return self._show(), reward, False, self.steps == 5, {}

    def _show(self) -> dict:
        self.lighter, self.switch = (int(bit) for bit in self.np_random.integers(2, size=2))
        picture = self.np_random.integers(0, 100, (48, 40, 3), np.uint8)
        picture[:, 20 * self.lighter : 20 * self.lighter + 20] += 100
        return {
            "distance": np.array([self.steps, -1000.0 * self.steps]),
            "picture": picture,
            "switch": self.switch,
        }


class Lights(gymnasium.Env):
    """Two cameras, each dark or bright, and a number of either sign: the right action is how many
    of the three are bright or positive. Who cannot see one of them is right in half of all cases.

    Episodes last four steps."""

    camera = spaces.Box(0, 255, (40, 40), np.uint8)
    observation_space = spaces.Dict(
        {
            "left": camera,
            "arm": spaces.Dict({"camera": camera, "position": spaces.Box(-9, 9, (2,))}),
            "mission": spaces.Text(9),
        }
    )
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        reward = float(action == self.bits.sum())
        self.steps += 1
        return self._show(), reward, False, self.steps == 4, {}

    def _show(self) -> dict:
        self.bits = self.np_random.integers(2, size=3)
        left, right, sign = self.bits
        return {
            "left": np.full((40, 40), 40 + 160 * left, np.uint8),
            "arm": {
                "camera": np.full((40, 40), 40 + 160 * right, np.uint8),
                "position": np.float32([5 * sign - 2.5, 3]),
            },
            "mission": "win",
        }


for name, entry_point, arguments in (
    ("Truncated-v0", Constant, {"terminates": False}),
    ("Terminated-v0", Constant, {"terminates": True}),
    ("Bandit-v0", Bandit, {}),
    ("Counting-v0", Counting, {}),
    ("Target-v0", Target, {}),
    ("Identity-v0", Identity, {"shown": "Discrete", "done": "Discrete"}),
    ("Masked-v0", Masked, {}),
    ("Picture-v0", Picture, {}),
    ("SameInfo-v0", SameInfo, {}),
    ("GridDeterministic-v0", Counting, {}),
    ("Endless-v0", Endless, {}),
):
    gymnasium.register(name, entry_point=entry_point, kwargs=arguments)


class NoTorch(Constant):
    """Raises in a worker process that has imported torch."""

    def __init__(self) -> None:
        super().__init__(terminates=True)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        if multiprocessing.parent_process() and "torch" in sys.modules:
            raise ImportError("torch was imported")
        return super().step(action)
