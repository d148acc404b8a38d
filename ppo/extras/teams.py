"""Teams of agents: parallel environments as PettingZoo's, each of whose agents is a column."""

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy import ndarray

from ppo.envs.episodes import Values, set_attributes
from ppo.envs.make import EnvMaker
from ppo.envs.spaces import ACTION_MASK
from ppo.errors import BadValue, ConfigError
from ppo.extras.masks import without_mask
from ppo.extras.vector import MaskedReset, Results, VectorColumns

PREFIX = "PettingZoo/"
TEAM_RETURN = "team_return"


def find_spec(env_name: str) -> EnvSpec:
    """Return what makes a team of PettingZoo, such as PettingZoo/butterfly.pistonball_v6."""
    place = f"pettingzoo.{env_name.removeprefix(PREFIX)}"
    try:
        make: Any = partial(importlib.import_module(place).parallel_env)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--env_name={env_name}: cannot import {place} ({error})") from error
    make.possible_agents = ()
    return EnvSpec(env_name, make)


class Team(MaskedReset):
    """Copies of a parallel environment: a column for each agent of the first one, then of the next.

    An agent whose episode is over is absent until it appears again, or until its copy is reset,
    which happens once the episodes of all of its agents are over. The info of the last one has the
    sum of all rewards as "team_return". A mask may be in an agent's info or observation."""

    is_whole = False

    def __init__(self, copies: Sequence[Any], limit: int | None) -> None:
        self.copies = copies
        self.env = copies[0]
        self.limit = limit
        self.agents = [*self.env.possible_agents]
        self.size = len(self.agents)
        self.num_envs = self.size * len(copies)
        self.observation_space, self.action_space = common_spaces(self.env)
        self.has_masks_inside = ACTION_MASK in getattr(self.observation_space, "spaces", ())
        if self.has_masks_inside:
            self.observation_space = without_mask(self.observation_space)
        self.present = np.zeros(self.num_envs, np.bool_)
        self.observations: list[Any] = [None] * self.num_envs
        self.infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self.lengths = np.zeros(len(copies), np.int64)
        self.returns = np.zeros(len(copies))
        self.is_over = np.ones(len(copies), np.bool_)

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Any]:
        for number in range(len(self.copies)):
            self._reset_copy(number, seeds[number * self.size])
        return self.observations, self.infos

    def step(self, actions: Any) -> Results:
        rewards = np.zeros(self.num_envs)
        ends = np.zeros((2, self.num_envs), np.bool_)  # terminations, truncations
        for number, env in enumerate(self.copies):
            first = number * self.size
            own = slice(first, first + self.size)
            acted = self.present[own].copy()
            acting = {x: actions[first + i] for i, x in enumerate(self.agents) if acted[i]}
            observations, paid, terminated, truncated, infos = env.step(acting)
            self.lengths[number] += 1
            is_late = self.limit is not None and self.lengths[number] >= self.limit
            for column, agent in enumerate(self.agents, first):
                self.present[column] = agent in env.agents
                if agent in acting:
                    rewards[column] = float(value_of(agent, paid))
                    ends[0, column] = value_of(agent, terminated)
                    ends[1, column] = value_of(agent, truncated) or is_late
                if agent in acting or self.present[column]:
                    self._read(column, value_of(agent, observations), infos.get(agent))
            self.returns[number] += rewards[own].sum()
            ended = ends[:, own].any(0)
            if (acted & ~ended & ~self.present[own]).any():
                raise BadValue("an agent has left before its episode had ended")
            self.is_over[number] = not (self.present[own] & ~ended).any()
            if self.is_over[number] and ended.any():
                last = first + int(np.flatnonzero(ended)[-1])
                self.infos[last] = {**self.infos[last], TEAM_RETURN: self.returns[number]}
        infos_before: Any = [*self.infos]
        return [*self.observations], rewards, ends[0], ends[1] & ~ends[0], infos_before

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Any]:
        for column, seed in zip(np.flatnonzero(ended).tolist(), seeds, strict=True):
            number = column // self.size
            if self.is_over[number]:
                self._reset_copy(number, seed)
        return self.observations, self.infos

    def observation(self, observations: Any, column: int) -> Any:
        return observations[column]

    def info(self, infos: Any, column: int) -> dict[str, Any]:
        return dict(infos[column])

    def set(self, attributes: Values) -> None:
        for env in self.copies:
            set_attributes(getattr(env, "unwrapped", env), attributes)

    def _reset_copy(self, number: int, seed: int) -> None:
        env = self.copies[number]
        observations, infos = env.reset(seed=seed)
        self.lengths[number] = 0
        self.returns[number] = 0
        self.is_over[number] = False
        if not env.agents:
            raise BadValue("no agent is there after its reset")
        for column, agent in enumerate(self.agents, number * self.size):
            self.present[column] = agent in env.agents
            if self.present[column]:
                self._read(column, value_of(agent, observations), infos.get(agent))

    def _read(self, column: int, observation: Any, info: Any) -> None:
        info = dict(info or {})
        if self.has_masks_inside:
            info = {ACTION_MASK: observation[ACTION_MASK], **info}
            observation = without_mask(observation)
        self.observations[column] = observation
        self.infos[column] = info


class TeamColumns(VectorColumns):
    """Step copies of a parallel environment; num_envs counts agents."""

    @staticmethod
    def make(make_env: EnvMaker, index: int, seeds: Sequence[int]) -> Team:
        """Make as many copies as have one agent for each seed; one for a first look."""
        config, spec = make_env.config, make_env.spec
        make: Any = spec.entry_point
        copies = [make(**spec.kwargs)]
        size = len(copies[0].possible_agents)
        count = config.num_envs if len(seeds) == 1 else len(seeds)
        if size and count % size:
            raise ConfigError(
                f"--num_envs={config.num_envs}: {spec.id} has {size} agents, which are columns: "
                f"give each worker a multiple of {size}"
            )
        copies += [make(**spec.kwargs) for _ in range(len(seeds) // max(1, size) - 1)]
        return Team(copies, config.max_episode_steps)

    @staticmethod
    def size_of_evaluation(make_env: EnvMaker, num_envs: int, episodes: int) -> int:
        """Return the number of agents in whole teams."""
        env: Any = make_env.spec.entry_point
        team = env(**make_env.spec.kwargs)
        size = len(team.possible_agents)
        team.close()
        return size * max(1, min(num_envs, episodes) // size)


def common_spaces(env: Any) -> tuple[Any, Any]:
    """Return the spaces of all agents, which share one policy. Raises ConfigError if they differ,
    or if there are no agents."""
    found = [(env.observation_space(x), env.action_space(x)) for x in env.possible_agents]
    if not found or any(spaces != found[0] for spaces in found):
        raise ConfigError(
            "--env_name: agents share one policy: name them in possible_agents, and give all of "
            "them the same spaces (by supersuit's pad_observations_v0 and pad_action_space_v0)"
        )
    return found[0]


def value_of(agent: Any, values: Any) -> Any:
    """Return what a step or a reset gave to an agent. Raises BadValue if it is missing."""
    try:
        return values[agent]
    except (KeyError, TypeError) as error:
        raise BadValue(f"it has returned nothing for agent {agent}") from error
