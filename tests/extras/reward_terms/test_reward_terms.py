"""Numbers of infos in the rollout: those of --reward_term."""

from typing import Any

import numpy as np
import pytest

from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.envs.errors import EnvironmentUnavailable
from ppo.run.checkpoint import copy_state
from tests.environments import Counting
from tests.running import PLAIN, worker_of


class Terms(Counting):
    """Reports its reward, the number of the step, and a number that is missing later."""

    def step(self, action: int) -> Any:
        *results, reward, terminated, truncated, info = super().step(action)
        info = {"reward": reward, "number": np.float32(self.steps)}
        if self.steps <= 2:
            info["early"] = 1
        return *results, reward, terminated, truncated, info


def parts_of(*names: str, **flags: Any) -> Components:
    values = {
        "env_name": "tests.extras.reward_terms.test_reward_terms:Terms",
        "num_envs": 2,
        "num_steps": 40,
    }
    return Components(settings_of(Config(**{**PLAIN, **values, **flags, "reward_term": names})))


@pytest.mark.parametrize("frame_skip", [1, 2])
def test_the_terms_of_every_step_are_in_the_rollout(frame_skip: int) -> None:
    parts = parts_of("number", "reward", frame_skip=frame_skip)
    rollout = parts.finish_collect(1, worker_of(parts, 2).collect(1))
    assert rollout.reward_terms.shape == (40, 2, 2)
    numbers, rewards = np.moveaxis(rollout.reward_terms, -1, 0)
    assert (rewards == rollout.rewards).all()
    assert rollout.terminations.any()
    first = rollout.observations[:-1, :, 1] + 1
    sums = frame_skip * first + frame_skip // 2
    # An action of an episode's last step is not repeated.
    assert ((numbers == sums) | rollout.dones & (numbers == first)).all()
    assert (numbers == sums)[~rollout.dones].all()


def test_a_term_that_is_missing_is_named() -> None:
    sentence = "--reward_term={} is None in the info of a step: let the environment report"
    with pytest.raises(EnvironmentUnavailable, match=sentence.format("none")):
        parts_of("none")
    with pytest.raises(EnvironmentUnavailable, match=r"--reward_term=numbr .*mean number\?"):
        parts_of("numbr")
    worker = worker_of(parts_of("early"), 2)
    with pytest.raises(EnvironmentUnavailable, match=sentence.format("early")):
        worker.run("collect", 1)


def test_terms_of_a_replayed_episode_are_not_counted_again() -> None:
    values = {"num_steps": 13, "frame_skip": 2}
    runs = [parts_of("number", **values) for _ in range(2)]
    for parts in runs:
        with parts.make_pool() as workers:
            parts.finish_collect(1, workers.collect(1))
            if parts is runs[0]:
                kept = copy_state(parts.state_dict())
                parts.finish_collect(2, workers.collect(2))
    whole, resumed = runs
    resumed.load_state_dict(kept)
    with resumed.make_pool() as workers:
        assert not resumed.restore_environments(workers)
        resumed.finish_collect(2, workers.collect(2))
    assert (resumed.rollout.observations == whole.rollout.observations).all()
    np.testing.assert_array_equal(resumed.rollout.reward_terms, whole.rollout.reward_terms)
