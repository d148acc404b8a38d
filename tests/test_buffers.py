"""Memory shared by the learner and the workers."""

import pytest

from ppo.algorithm import buffers
from ppo.errors import ConfigError
from ppo.system import hardware
from tests.running import make_components


def test_tables_for_workers_are_the_same_memory() -> None:
    shared = make_components("Counting-v0", num_envs=3, num_steps=5).buffers
    shared.shared_rollouts[0]["rewards"].array[2, 1] = 7
    assert shared.rollouts[0].rewards[2, 1] == 7
    shared.shared_weights.array[0] = 3
    assert shared.behaviour_weights[0] == 3
    shared.shared_counts.array[2] = 4
    assert shared.episode_counts.tolist() == [0, 0, 4]


def test_there_are_two_rollouts_only_where_one_is_collected_during_the_update() -> None:
    assert len(make_components("Counting-v0").buffers.rollouts) == 1
    assert len(make_components("Counting-v0", overlap=True, num_workers=2).buffers.rollouts) == 2


def test_rollouts_that_do_not_fit_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hardware, "physical_memory", lambda: 100_000)
    monkeypatch.setattr(buffers, "SharedArray", pytest.fail)
    with pytest.raises(ConfigError, match="--num_envs or --num_steps must be lower"):
        make_components("Counting-v0", num_steps=10_000, total_steps=10**6, hidden_size=8)
