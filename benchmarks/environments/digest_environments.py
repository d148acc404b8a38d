"""Environments and callbacks of benchmarks.digests, which any commit of the trainer can run."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo import Callback

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class MaskedChoices(gymnasium.Env[Any, Any]):
    """Choose two numbers, some of which are forbidden in each step; an episode takes 7 steps."""

    observation_space = spaces.Box(-1, 1, (4,))
    action_space = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe()

    def step(self, action: Any) -> Step:
        assert self.allowed[[action[0], 3 + action[1]]].all()
        self.steps += 1
        reward = float(self.observation[0] * (action[0] - 1) + action[1] * self.observation[1])
        observation, info = self._observe()
        return observation, reward, False, self.steps == 7, info

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        self.observation = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        self.allowed = np.ones(5, np.int8)
        self.allowed[self.np_random.integers(3)] = 0
        return self.observation, {"action_mask": self.allowed}


class Camera(gymnasium.Env[Any, Any]):
    """Observe an image and a vector; an episode takes 5 to 8 steps."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (40, 48, 3), np.uint8), "speed": spaces.Box(-1, 1, (3,))}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(5, 9))
        return self._observe(), {}

    def step(self, action: Any) -> Step:
        self.left -= 1
        reward = float((self.speed[0] > 0) == action)
        return self._observe(), reward, self.left == 0 and self.lighter, self.left == 0, {}

    def _observe(self) -> Any:
        self.lighter = bool(self.np_random.integers(2))
        self.speed = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        image = self.np_random.integers(0, 100 + 100 * self.lighter, (40, 48, 3), np.uint8)
        return {"image": image, "speed": self.speed}


class Slippery(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole with noise in its actions, by a level that training sets."""

    def __init__(self, **options: Any) -> None:
        super().__init__(gymnasium.make("CartPole-v1", **options))
        self.level = 0.0

    def set_training(self, level: float) -> None:
        self.level = level

    def step(self, action: Any) -> Any:
        if self.env.np_random.random() < self.level:
            action = 1 - action
        *results, info = self.env.step(action)
        return *results, {**info, "level": self.level}


class Harder(Callback):
    """Raise the level of Slippery every second iteration, and remember how many episodes ended."""

    def __init__(self) -> None:
        self.episodes = 0

    def on_episode(self, run: Any, episode: Any) -> None:
        self.episodes += 1

    def on_iteration(self, run: Any) -> None:
        run.log("own/episodes", self.episodes)
        if run.is_due(2):
            run.set_env(level=min(0.3, run.iteration / 20))

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": self.episodes, "table": np.full(3, float(self.episodes))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episodes = state["episodes"]


class Setter(Callback):
    """Call ppo set in the third iteration: the fourth has another learning rate."""

    def on_iteration(self, run: Any) -> None:
        if run.iteration == 3:
            settings = ("learning_rate=1e-4", "entropy_coef=linear:0.01")
            command = [sys.executable, "main.py", "set", str(run.folder.path), *settings]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def together(num_envs: int) -> Any:
    """Make a batch of environments."""
    return gymnasium.make_vec("CartPole-v1", num_envs, "sync")


class Relay:
    """A team in PettingZoo's way: three agents, of whom one leaves early and one comes late.

    Each observes random numbers, and is paid for an action of the sign of the first of them."""

    possible_agents = ("early", "middle", "late")
    render_mode = None
    metadata: dict[str, Any] = {}  # noqa: RUF012

    @property
    def unwrapped(self) -> "Relay":
        return self

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-np.inf, np.inf, (3,))

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.random = np.random.default_rng(seed)
        self.time = 0
        self.agents = ["early", "middle"]
        self._observe(self.possible_agents)
        return self._of(self.agents, self.numbers), self._of(self.agents, {})

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        self.time += 1
        rewards = {
            agent: float(actions[agent] == (self.numbers[agent][0] > 0)) for agent in actions
        }
        ends = {"early": self.time == 3, "middle": self.time == 9, "late": self.time == 7}
        is_over = self._of(self.agents, ends)
        shown = [*self.agents]
        self.agents = [agent for agent in shown if not is_over[agent]]
        if self.time == 2:
            self.agents.append("late")
            shown.append("late")
        self._observe(self.possible_agents)
        never = dict.fromkeys(is_over, False)
        infos = self._of(shown, {})
        return self._of(shown, self.numbers), rewards, is_over, never, infos

    def close(self) -> None:
        pass

    def _observe(self, agents: Any) -> None:
        self.numbers = {agent: self.random.normal(size=3).astype(np.float32) for agent in agents}

    def _of(self, agents: Any, values: Any) -> dict[str, Any]:
        return {agent: values.get(agent, {}) for agent in agents}


class Far(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Pendulum, whose observations are far from zero, in float64."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def observation(self, observation: Any) -> Any:
        return 1.7e9 + observation.astype(np.float64)
