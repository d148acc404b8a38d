"""Teams of agents, some of whom leave early or come late."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from ppo import load_policy
from ppo.errors import ConfigError
from tests.running import disturb, running, train

SIX = {"num_envs": 6, "normalize_observations": True}


class Three:
    """Agents live from one step to another one of an episode of four steps; each earns 1 a step,
    and sees when it is."""

    possible_agents = ("early", "always", "late")
    lives = ((0, 2), (0, 4), (2, 4))

    def observation_space(self, agent: str) -> Any:
        return Box(0, 4, (1,))

    def action_space(self, agent: str) -> Any:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return self.begin_step(0), {}

    def begin_step(self, time: int) -> dict[str, Any]:
        self.time = time
        lives = zip(self.possible_agents, self.lives, strict=True)
        self.agents = [x for x, (first, end) in lives if first <= time < end]
        return {x: np.full(1, time, np.float32) for x in self.possible_agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert {*actions} == {*self.agents}
        observations = self.begin_step(self.time + 1)
        gone = {x: x not in self.agents for x in actions}
        ones = dict.fromkeys(actions, 1.0)
        return observations, ones, gone, dict.fromkeys(actions, False), {}

    def close(self) -> None:
        self.is_closed = True


class Masked(Three):
    """Observations have a mask, which allows the second action only."""

    def observation_space(self, agent: str) -> Any:
        return Dict({"time": Box(0, 4, (1,)), "action_mask": MultiBinary(2)})

    def begin_step(self, time: int) -> dict[str, Any]:
        mask = np.array([0, 1], np.int8)
        return {x: {"time": t, "action_mask": mask} for x, t in super().begin_step(time).items()}

    def step(self, actions: dict[str, Any]) -> Any:
        assert {*actions.values()} == {1}
        return super().step(actions)


def test_agents_act_and_are_learned_from_while_they_live(tmp_path):
    with running(Three, tmp_path, **SIX) as run:
        rollout = run.collect()
        present = rollout.present[:4, :3].T.tolist()
        assert present == [[True, True, False, False], [True] * 4, [False, False, True, True]]
        assert rollout.observations[:4, 2, 0].tolist() == [0, 0, 2, 3]
        assert rollout.terminations[:4, :3].sum(0).tolist() == [1, 1, 1]
        assert rollout.rewards[:4, :3].sum(0).tolist() == [2, 4, 2]
        episodes = [x for x in rollout.report.episodes if x.environment < 3 and x.step < 4]
        assert [(x.environment, x.episode_return) for x in episodes] == [(0, 2), (1, 4), (2, 2)]
        assert [x.metrics.get("team_return") for x in episodes] == [None, None, 8]
        batch = run.make_batch(rollout)
        run.end_iteration(run.update(batch))
        seen = rollout.observations[:-1][rollout.present]
        np.testing.assert_allclose(run.normalize.shift, seen.mean(0), rtol=1e-6)
        copies = run.pool.workers[0].worker.columns.vector.copies  # type: ignore[union-attr]
    assert all(copy.is_closed for copy in copies)


@pytest.mark.parametrize("model", ["lstm", "gru"])
def test_a_memory_begins_anew_where_an_agent_comes_late(model, tmp_path):
    flags = {"model": model, "num_minibatches": 1, **SIX, "normalize_observations": False}
    with running(Three, tmp_path, **flags) as run:
        disturb(run.model)
        run.publish()
        batch = run.make_batch(run.collect())
        metrics = run.learner.gradient(next(run.learner._minibatches(batch, 1)))
        assert abs(metrics["approx_kl"]) < 1e-6


def test_masks_within_observations_are_obeyed(tmp_path):
    summary = train(Masked, tmp_path, 1, num_envs=3, eval_episodes=3)
    assert sorted(summary.evaluation.returns) == [2, 2, 4]


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="num_envs=4"):
        train(Three, tmp_path, 1, num_envs=4, eval_episodes=0)

    class Other(Three):
        def action_space(self, agent: str) -> Any:
            return Discrete(2 + len(agent))

    with pytest.raises(ConfigError, match="share one policy"):
        train(Other, tmp_path, 1, num_envs=3)


def test_a_team_of_pettingzoo(tmp_path):
    pytest.importorskip("pettingzoo")
    pytest.importorskip("pettingzoo.butterfly.knights_archers_zombies_v11")
    name = "PettingZoo/butterfly.knights_archers_zombies_v11"
    summary = train(name, tmp_path, 1, num_envs=4, max_episode_steps=10, eval_episodes=4)
    assert "team_return" in summary.evaluation.env


def test_a_team_is_evaluated_whole_for_any_number_of_environments(tmp_path):
    train(Three, tmp_path, 1, num_envs=3)
    for num_envs in (1, 8):
        found = load_policy(tmp_path, Three).evaluate(4, num_envs=num_envs)
        assert {*found.returns} <= {2, 4}
        assert found.env["team_return"] == 8
