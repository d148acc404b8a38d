"""Teams of agents: parallel environments as PettingZoo's, each of whose agents is a column."""

import importlib
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy import ndarray

from ppo.envs.episodes import Values, set_attributes
from ppo.envs.make import EnvMaker
from ppo.envs.spaces import ACTION_MASK
from ppo.errors import BadValue, ConfigError
from ppo.extras.autoreset import Info, MaskedReset, Results, Seeds
from ppo.extras.masks import without_mask
from ppo.extras.vector import VectorColumns

PREFIX = "PettingZoo/"
TEAM_RETURN = "team_return"


def find_spec(env_name: str) -> EnvSpec:
    """Return what makes a team of PettingZoo, such as PettingZoo/butterfly.pistonball_v6."""
    place = f"pettingzoo.{env_name.removeprefix(PREFIX)}"
    try:
        module = importlib.import_module(place)
        make: Any = partial(module.parallel_env)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--env_name={env_name}: cannot import {place} ({error})") from error
    make.possible_agents = ()
    return EnvSpec(env_name, make)


class Team(MaskedReset):
    """Copies of a parallel environment: a column for each agent of the first one, then of the next.

    An agent whose episode is over is absent until it appears again, or until its copy is reset,
    which happens once the episodes of all of its agents are over. The info of the last one has the
    sum of all rewards as "team_return". A mask may be in an agent's info or observation."""

    limit = None  # columns need not know it

    def __init__(self, copies: list[Any], max_steps: int | None) -> None:
        self.copies = copies
        self.env = copies[0]
        self.max_steps = max_steps
        self.agents = [*self.env.possible_agents]
        self.size = len(self.agents)
        self.num_envs = self.size * len(copies)
        observes, self.action_space = common_spaces(self.env)
        self.has_masks_inside = ACTION_MASK in getattr(observes, "spaces", ())
        if self.has_masks_inside:
            observes = without_mask(observes)
        self.observation_space = observes
        self.present = np.zeros(self.num_envs, bool)
        self.observations = [None] * self.num_envs
        self.infos = [{}] * self.num_envs
        self.steps = [0] * len(copies)
        self.returns = [0.0] * len(copies)
        self.is_over = [True] * len(copies)

    def reset(self, seeds: Seeds) -> None:
        for number, seed in enumerate(seeds[:: self.size]):
            self._reset_copy(number, seed)

    def step(self, actions: Any) -> Results:
        rewards = np.zeros(self.num_envs)
        terminations, truncations = np.zeros((2, self.num_envs), bool)
        for number, env in enumerate(self.copies):
            first = number * self.size
            own = slice(first, first + self.size)
            acted = self.present[own].copy()
            each = zip(self.agents, actions[own], strict=True)
            acting = dict(compress(each, acted))
            observations, paid, terminated, truncated, infos = env.step(acting)
            self._read(number, acting, observations, infos)
            self.steps[number] += 1
            is_late = self.max_steps and self.steps[number] >= self.max_steps
            for column, agent in enumerate(self.agents, first):
                if agent in acting:
                    rewards[column] = float(value_of(agent, paid))
                    terminations[column] = value_of(agent, terminated)
                    truncations[column] = value_of(agent, truncated) or is_late
            self.returns[number] += rewards[own].sum()
            ended = terminations[own] | truncations[own]
            playing = self.present[own]
            left = acted & ~playing
            if (left & ~ended).any():
                raise BadValue("an agent left before its episode ended")
            is_over = not (playing & ~ended).any()
            self.is_over[number] = is_over
            if is_over and ended.any():
                last = first + np.flatnonzero(ended)[-1]
                info = self.infos[last]
                info[TEAM_RETURN] = self.returns[number]
        return rewards, terminations, truncations

    def restart(self, ended: ndarray, seeds: Seeds) -> None:
        for column in np.flatnonzero(ended).tolist():
            number = column // self.size
            if self.is_over[number]:
                self._reset_copy(number, seeds[column])

    def observation(self, column: int) -> Any:
        return self.observations[column]

    def info(self, column: int) -> Info:
        return {**self.infos[column]}

    last_observation = observation
    last_info = info

    def set(self, attributes: Values) -> None:
        for env in self.copies:
            inner = getattr(env, "unwrapped", env)
            set_attributes(inner, attributes)

    def _reset_copy(self, number: int, seed: int) -> None:
        env = self.copies[number]
        observations, infos = env.reset(seed=seed)
        self.steps[number] = 0
        self.returns[number] = 0.0
        self.is_over[number] = False
        if not env.agents:
            raise BadValue("it has no agents after reset")
        self._read(number, (), observations, infos)

    def _read(
        self,
        number: int,
        acting: Any,
        observations: Any,
        infos: Any,
    ) -> None:
        """Read what a copy's agents see who act next, or have acted."""
        env = self.copies[number]
        for column, agent in enumerate(self.agents, number * self.size):
            self.present[column] = agent in env.agents
            if agent not in acting and agent not in env.agents:
                continue
            observation = value_of(agent, observations)
            info = dict(infos.get(agent) or {})
            if self.has_masks_inside:
                info.setdefault(ACTION_MASK, observation[ACTION_MASK])
                observation = without_mask(observation)
            self.observations[column] = observation
            self.infos[column] = info


class TeamColumns(VectorColumns):
    """Step copies of a parallel environment; num_envs counts agents."""

    @staticmethod
    def make(make_env: EnvMaker, index: int, seeds: Seeds) -> Team:
        """Make as many copies as have one agent for each seed; one for a first look."""
        config = make_env.config
        copy = make_copy(make_env)
        size = max(1, len(copy.possible_agents))
        is_look = len(seeds) == 1
        count = config.num_envs if is_look else len(seeds)
        if count % size:
            raise ConfigError(
                f"--num_envs={config.num_envs}: {make_env.spec.id} has {size} agents, which are "
                f"columns: give each worker a multiple of {size}"
            )
        copies = [copy]
        for _ in range(1, len(seeds) // size):
            copies.append(make_copy(make_env))
        return Team(copies, config.max_episode_steps)

    @staticmethod
    def size_of_evaluation(
        make_env: EnvMaker,
        num_envs: int,
        episodes: int,
    ) -> int:
        """Return the number of agents in whole teams."""
        copy = make_copy(make_env)
        copy.close()
        size = len(copy.possible_agents)
        teams = min(num_envs, episodes) // size
        return size * max(1, teams)


def make_copy(make_env: EnvMaker) -> Any:
    make: Any = make_env.spec.entry_point
    return make(**make_env.spec.kwargs)


def common_spaces(env: Any) -> tuple[Any, Any]:
    """Return the spaces of all agents, which share one policy. Raises ConfigError if they differ,
    or if there are no agents."""
    found = []
    for agent in env.possible_agents:
        observes = env.observation_space(agent)
        spaces = observes, env.action_space(agent)
        if spaces not in found:
            found.append(spaces)
    if len(found) != 1:
        raise ConfigError(
            "--env_name: agents share one policy: name them in possible_agents, and give all of "
            "them the same spaces (by supersuit's pad_observations_v0 and pad_action_space_v0)"
        )
    return found[0]


def value_of(agent: Any, values: Any) -> Any:
    """Return what a step or a reset gave to an agent. Raises BadValue if it is missing."""
    if not values or agent not in values:
        raise BadValue(f"it has returned nothing for agent {agent}")
    return values[agent]
