"""Vector environments: what is written of their episodes, in all modes of starting the next one."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

from ppo.errors import ConfigError
from tests.running import disturb, running, train
from tests.worlds import Constant, Counting, Film, Masked


def together(num_envs: int, env: Any = Counting) -> Any:
    """Make gymnasium's own, which is told which environments to reset."""
    return SyncVectorEnv([env] * num_envs)


class Steps(Constant):
    """Shows the step of the episode, of which there are three; the last one truncates it."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset()
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        _, reward, *_ = super().step(action)
        shown = np.full(1, self.steps / 3, np.float32)
        return shown, reward, False, self.steps == 3, {"steps": float(self.steps)}


class Uneven(Masked):
    """Has episodes of any length; a forbidden action raises."""

    def step(self, action: Any) -> Any:
        shown, reward, _, _, info = super().step(action)
        return shown, reward, self.np_random.random() < 0.3, False, info


class Plain(VectorWrapper):
    """Hides that an environment is gymnasium's own."""

    @property
    def unwrapped(self) -> Any:
        return self

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        assert not options, "it cannot be told which environments to reset"
        return self.env.reset(seed=seed)


def by_itself(num_envs: int, mode: str, env: Any = Steps) -> Any:
    """Make a vector environment that begins episodes by itself."""
    return Plain(SyncVectorEnv([env] * num_envs, autoreset_mode=AutoresetMode(mode)))


@pytest.mark.parametrize("env", [Counting, Film, Masked])
def test_rollouts_are_those_of_single_environments(env, tmp_path):
    tables = []
    for number, made in enumerate((env, partial(together, env=env))):
        with running(made, tmp_path / str(number)) as run:
            for _ in range(2):
                rollout = run.collect()
            found = {name: x.copy() for name, x in rollout.tables.items() if name != "beats"}
            tables.append({**found, "episodes": rollout.report.episodes})
            last = [(x.step, x.environment, *x.rows.values()) for x in rollout.report.truncated]
            tables[-1]["last"] = last
    for name, expected in tables[0].items():
        np.testing.assert_equal(tables[1][name], expected, err_msg=name)
    assert tables[0]["episodes"]


def test_the_next_episode_begins_in_the_same_step(tmp_path):
    with running(by_itself, tmp_path, env_kwargs={"mode": "SameStep"}) as run:
        rollout = run.collect()
        shown = rollout.observations[:, 0, 0]
        np.testing.assert_allclose(shown[:7], [0, 1 / 3, 2 / 3, 0, 1 / 3, 2 / 3, 0], atol=1e-6)
        assert rollout.truncations[:6, 0].tolist() == [False, False, True] * 2
        assert {float(x.rows["observations"][0]) for x in rollout.report.truncated} == {1.0}
        assert {x.episode_return for x in rollout.report.episodes} == {3.0}
        assert {x.metrics["steps"] for x in rollout.report.episodes} == {3.0}
        assert rollout.acting is None


def test_steps_that_only_begin_an_episode_are_not_learned_from(tmp_path):
    with running(by_itself, tmp_path, env_kwargs={"mode": "NextStep"}) as run:
        rollout = run.collect()
        assert rollout.acting is not None
        assert rollout.acting[:8, 0].tolist() == [True, True, True, False] * 2
        shown = rollout.observations[:9, 0, 0]
        expected = [0, 1 / 3, 2 / 3, 0, 0, 1 / 3, 2 / 3, 0, 0]
        np.testing.assert_allclose(shown, expected, atol=1e-6)
        assert not rollout.dones[3::4].any()
        assert not rollout.rewards[3::4].any()
        batch = run.make_batch(rollout)
        seen = np.concatenate([x["advantages"].shape for x in run.learner._minibatches(batch, 1)])
        assert seen.sum() == rollout.acting.sum() * run.config.num_epochs
        run.end_iteration(run.update(batch))
        assert run.metrics["gradient_steps"] > 0


def test_a_rollout_that_only_begins_episodes_changes_nothing(tmp_path):
    flags: Any = {"env_kwargs": {"mode": "NextStep"}, "num_steps": 1, "num_minibatches": 1}
    with running(by_itself, tmp_path, **flags) as run:
        for learns in (True, True, True, False):
            before = run.learner.weights.clone()
            run.end_iteration(run.update(run.make_batch(run.collect())))
            assert bool(run.metrics["gradient_steps"]) == learns
            assert before.equal(run.learner.weights) != learns


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_masks_are_obeyed_also_where_others_end(mode, tmp_path):
    with running(partial(by_itself, mode=mode, env=Uneven), tmp_path) as run:
        assert run.collect().report.episodes


@pytest.mark.parametrize("model", ["lstm", "gru"])
def test_a_memory_is_learned_from_as_it_acted_where_steps_do_not_count(model, tmp_path):
    kwargs = {"mode": "NextStep"}
    with running(by_itself, tmp_path, env_kwargs=kwargs, model=model, num_minibatches=1) as run:
        disturb(run.model)
        run.publish()
        for _ in range(2):
            batch = run.make_batch(run.collect())
        assert "present" in batch
        minibatch = next(run.learner._minibatches(batch, 1))
        assert len(minibatch["advantages"]) == run.rollout.present.sum()
        metrics = run.learner.gradient(minibatch)
        assert abs(metrics["approx_kl"]) < 1e-6


def test_what_a_vector_environment_cannot_obey_is_refused(tmp_path):
    for flags in ({"frame_skip": 2}, {"max_episode_steps": 2}):
        kwargs = {"mode": "NextStep"}
        with pytest.raises(ConfigError):
            train(by_itself, tmp_path, 1, env_kwargs=kwargs, eval_episodes=1, **flags)


def test_a_vector_environment_is_evaluated_in_whole_episodes(tmp_path):
    for mode in ("SameStep", "NextStep"):
        path = tmp_path / mode
        summary = train(by_itself, path, 1, env_kwargs={"mode": mode}, eval_episodes=7)
        assert summary.evaluation.returns == [3.0] * 7
        assert summary.evaluation.lengths == [3] * 7


def test_envpool_trains_and_truncates(tmp_path):
    pytest.importorskip("envpool")
    flags = {"max_episode_steps": 5, "eval_episodes": 3}
    summary = train("EnvPool/CartPole-v1", tmp_path, 2, **flags)
    assert summary.evaluation.lengths == [5] * 3


def paired(num_envs: int) -> Any:
    """Make environments two by two."""
    assert num_envs in (4, 8)
    return together(num_envs // 2 * 2, Constant)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_is_asked_for_is_what_a_worker_gets(num_workers, tmp_path):
    summary = train(paired, tmp_path, 1, num_envs=8, num_workers=num_workers, eval_episodes=3)
    assert summary.evaluation.lengths == [10] * 3


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda num_envs: Constant(), "the PettingZoo environment itself"),
        (lambda num_envs: None, "the PettingZoo environment itself"),
        (lambda num_envs: together(3), "3 environments for num_envs=4"),
    ],
)
def test_what_is_not_the_vector_that_was_asked_for_is_a_sentence(make, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        train(make, tmp_path, 1)
