"""Teams: the agents of PettingZoo's parallel environments, as columns of a batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Dict
from numpy import ndarray

from ppo.envs.episodes import Info, set_attributes
from ppo.envs.errors import EnvironmentUnavailable, InvalidEnvOutput
from ppo.envs.spaces import ACTION_MASK, without_mask
from ppo.extras.checks.observations import check_end, check_results, check_reward
from ppo.extras.vector.batches import Batch
from ppo.extras.vector.columns import row_of

TEAM_RETURN = "team_return"


class Team(Batch):
    """Copies of a ParallelEnv, with a column for each of their k agents: all of the first copy,
    then those of the next.

    An agent whose episode is over is absent until it appears again, or until the copy is reset,
    which happens once the episodes of all its agents are over. The info of the last one has the sum
    of all agents' rewards as "team_return". Masks of actions are read from infos or observations.
    max_episode_steps: after which a copy's episodes are truncated; None: its own limit.
    Raises EnvironmentUnavailable without any agent, or if agents' spaces differ, since they share
    one policy; InvalidEnvOutput if no agent is there after a reset."""

    def __init__(self, copies: Sequence[Any], max_episode_steps: int | None = None) -> None:
        self.copies = copies
        first = copies[0]
        self.agents = agents_of(first)
        self.size = len(self.agents)
        self.num_envs = self.size * len(copies)
        self.max_episode_steps = max_episode_steps or np.inf
        self.metadata = getattr(first, "metadata", {})
        self.render_mode = getattr(first, "render_mode", None)
        self.spec = None
        self.note = ""
        self.observation_space, self.action_space = _common_spaces(first)
        # A mask beside what an agent observes, as PettingZoo's classic games have it.
        self.has_masks_inside = ACTION_MASK in getattr(self.observation_space, "spaces", ())
        if self.has_masks_inside:
            self.observation_space = without_mask(Dict, self.observation_space.spaces)
        self.present: ndarray = np.zeros(self.num_envs, np.bool_)
        self.observations: list[Any] = [None] * self.num_envs
        self.infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self.lengths = [0] * len(copies)
        self.returns = [0.0] * len(copies)
        self.is_over = [True] * len(copies)

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Any]:
        for number in range(len(self.copies)):
            self._reset(number, seeds[number * self.size])
        return self.observations, self.infos

    def step(self, actions: Any) -> tuple[Any, ...]:
        rewards = np.zeros(self.num_envs)
        terminations = np.zeros(self.num_envs, np.bool_)
        truncations = np.zeros(self.num_envs, np.bool_)
        before = self.present
        self.present = np.zeros(self.num_envs, np.bool_)
        for number, env in enumerate(self.copies):
            columns = range(number * self.size, (number + 1) * self.size)
            acting = {
                agent: row_of(actions, i)
                for agent, i in zip(self.agents, columns, strict=True)
                if before[i]
            }
            results = check_results("step", env.step(acting), 5)
            observations, paid, terminated, truncated, infos = results
            self.lengths[number] += 1
            is_late = self.lengths[number] >= self.max_episode_steps
            for agent, i in zip(self.agents, columns, strict=True):
                self.present[i] = agent in env.agents
                if before[i]:
                    rewards[i] = check_reward(_value(agent, paid))
                    terminations[i] = check_end("termination", _value(agent, terminated))
                    is_cut = check_end("truncation", _value(agent, truncated)) or is_late
                    truncations[i] = is_cut and not terminations[i]
                    self.returns[number] += rewards[i]
                if before[i] or self.present[i]:
                    self._read(i, _value(agent, observations), infos.get(agent) or {})
            own = slice(columns.start, columns.stop)
            ended = terminations[own] | truncations[own]
            if (before[own] & ~ended & ~self.present[own]).any():
                raise InvalidEnvOutput("an agent has left before its episode had ended")
            remaining = self.present[own] & ~ended
            self.is_over[number] = not remaining.any()
            if self.is_over[number] and ended.any():
                last = columns.start + int(np.flatnonzero(ended)[-1])
                self.infos[last] = {**self.infos[last], TEAM_RETURN: self.returns[number]}
        return self.observations, rewards, terminations, truncations, self.infos

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Any]:
        """Begin new episodes in the copies all of whose agents' episodes are over."""
        for column, seed in zip(np.flatnonzero(ended).tolist(), seeds, strict=True):
            number = column // self.size
            if self.is_over[number]:
                self._reset(number, seed)
        return self.observations, self.infos

    def render(self) -> Any:
        return self.copies[0].render()

    def close(self) -> None:
        for env in self.copies:
            env.close()

    def set_training(self, env_attributes: Mapping[str, Any]) -> None:
        for env in self.copies:
            set_attributes(env.unwrapped, env_attributes)

    def _reset(self, number: int, seed: int) -> None:
        env = self.copies[number]
        observations, infos = check_results("reset", env.reset(seed=seed), 2)
        self.lengths[number] = 0
        self.returns[number] = 0.0
        self.is_over[number] = False
        for i, agent in enumerate(self.agents, number * self.size):
            self.present[i] = agent in env.agents
            if self.present[i]:
                self._read(i, _value(agent, observations), infos.get(agent) or {})
        if not self.present[number * self.size : (number + 1) * self.size].any():
            raise InvalidEnvOutput("no agent is there after its reset")

    def _read(self, i: int, observation: Any, info: Info) -> None:
        """Take an agent's observation and info, with the mask that may be in either."""
        if self.has_masks_inside:
            info = {ACTION_MASK: observation[ACTION_MASK], **info}
            observation = without_mask(dict, observation)
        self.observations[i] = observation
        self.infos[i] = info


def agents_of(env: Any) -> list[Any]:
    """Return all agents that a ParallelEnv may have. Raises EnvironmentUnavailable if there are
    none."""
    agents = list(env.possible_agents)
    if not agents:
        raise EnvironmentUnavailable(
            f"{type(env).__name__} is a team without agents: name those that it may have in "
            "possible_agents"
        )
    return agents


def _common_spaces(env: Any) -> tuple[Any, Any]:
    """Return the spaces of all agents. Raises EnvironmentUnavailable if they differ."""
    agents = agents_of(env)
    first, *others = [(env.observation_space(agent), env.action_space(agent)) for agent in agents]
    for agent, spaces in zip(agents[1:], others, strict=True):
        if spaces != first:
            raise EnvironmentUnavailable(
                f"agent {agent} observes {spaces[0]} and acts in {spaces[1]}, {agents[0]} "
                f"{first[0]} and {first[1]}: agents share one policy; give all of them the same "
                "spaces, by supersuit's pad_observations_v0 and pad_action_space_v0 for instance"
            )
    return first


def _value(agent: str, values: Any) -> Any:
    """Return what a step or a reset gave to an agent. Raises InvalidEnvOutput if it is missing."""
    try:
        return values[agent]
    except (KeyError, TypeError, IndexError) as error:
        raise InvalidEnvOutput(f"it returned nothing for agent {agent}") from error
