"""Teams, with the interface of PettingZoo's parallel environments, and batches, for tests."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces


def sync(num_envs: int, mode: str = "NextStep") -> Any:
    """CartPoles in one process, with one of gymnasium's autoreset modes."""
    kind = gymnasium.vector.AutoresetMode(mode)
    return gymnasium.make_vec(
        "CartPole-v1", num_envs, "sync", vector_kwargs={"autoreset_mode": kind}
    )


def entry_point(num_envs: int) -> Any:
    """CartPoles by gymnasium's vector entry point, which has a dead row for each episode."""
    return gymnasium.make_vec("CartPole-v1", num_envs, "vector_entry_point")


class Relay:
    """Three agents, of whom agent i leaves in step lifetimes[i]; the last one ends the episode.

    Agent "late" appears after the first step. Each observes (number, step), and is paid its number
    for action 1, which a mask forbids in even steps."""

    possible_agents = ("early", "middle", "late")
    lifetimes = (2, 5, 4)
    render_mode = None

    def __init__(self, odd_one_out: bool = False, masks: str = "") -> None:
        self.odd_one_out = odd_one_out
        self.masks = masks
        self.agents: list[str] = []
        self.bonus = 0.0

    @property
    def unwrapped(self) -> "Relay":
        return self

    def observation_space(self, agent: str) -> Any:
        box = spaces.Box(-np.inf, np.inf, (3 if self.odd_one_out and agent == "late" else 2,))
        if self.masks == "observation":
            return spaces.Dict(observation=box, action_mask=spaces.Box(0, 1, (2,), np.int8))
        return box

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.time = 0
        self.agents = ["early", "middle"]
        return self._observe(self.agents), self._infos(self.agents)

    def step(self, actions: dict[str, int]) -> tuple[Any, ...]:
        assert {*actions} == {*self.agents}, "absent agents do not act"
        if self.masks and self.time % 2 == 0:
            assert not any(actions.values()), "the mask forbids 1"
        self.time += 1
        acting = self.agents
        rewards = {
            agent: (1 + self.possible_agents.index(agent)) * float(actions[agent]) + self.bonus
            for agent in acting
        }
        lives = dict(zip(self.possible_agents, self.lifetimes, strict=True))
        is_over = {agent: self.time >= lives[agent] for agent in acting}
        terminations = {agent: is_over[agent] and agent != "middle" for agent in acting}
        truncations = {agent: is_over[agent] and agent == "middle" for agent in acting}
        self.agents = [agent for agent in acting if not is_over[agent]]
        shown = [*acting]
        if self.time == 1:
            self.agents.append("late")
            shown.append("late")
        return self._observe(shown), rewards, terminations, truncations, self._infos(shown)

    def close(self) -> None:
        pass

    def _observe(self, agents: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for agent in agents:
            number = self.possible_agents.index(agent)
            shown = np.array([number, self.time], np.float32)
            found[agent] = shown
            if self.masks == "observation":
                found[agent] = {"observation": shown, "action_mask": self._mask()}
        return found

    def _infos(self, agents: list[str]) -> dict[str, Any]:
        if self.masks == "info":
            return {agent: {"action_mask": self._mask()} for agent in agents}
        return {agent: {} for agent in agents}

    def _mask(self) -> np.ndarray:
        return np.array([1, self.time % 2], np.int8)


class Simulator:
    """A world of torch tensors that begins the next episode in the step that ends one, and does not
    give the last observation."""

    metadata: ClassVar = {"autoreset_mode": "same_step"}
    single_observation_space = spaces.Box(-np.inf, np.inf, (2,))
    single_action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def reset(self, seed: Any = None, options: Any = None) -> tuple[Any, Any]:
        self.time = torch.arange(self.num_envs) % 3
        return self._observe(), {}

    def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
        self.time += 1
        is_late = self.time >= 4
        self.time[is_late] = 0
        return self._observe(), actions.sum(1), torch.zeros_like(is_late), is_late, {}

    def close(self) -> None:
        pass

    def _observe(self) -> torch.Tensor:
        return torch.stack([self.time, torch.arange(self.num_envs)], 1).float()
