"""From a rollout to the batch that is learned from, and its minibatches."""

from itertools import chain

import numpy as np
import pytest
import torch

from ppo.algorithm.rollout import Batch
from ppo.components import Components
from tests.running import make_components, worker_of


def collected(**values: object) -> tuple[Components, Batch]:
    """Collect a rollout of Counting, and make its batch."""
    parts = make_components("Counting-v0", num_envs=4, num_steps=16, **values)
    rollout = parts.finish_collect(1, worker_of(parts, 4).collect(1))
    return parts, parts.make_batch(rollout)


def test_the_last_observation_of_a_truncated_episode_is_bootstrapped_from() -> None:
    """One transition each: A = r + gamma V(what the action led to) - V(before).

    After a termination there is no value."""
    parts = make_components("Counting-v0", num_envs=8, num_steps=16, gae_lambda=0.0)
    rollout = parts.finish_collect(1, worker_of(parts, 8).collect(1))
    batch = parts.learner.make_batch(rollout, lambda observations: observations, rollout.rewards)

    def value(observations: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            values = parts.model(torch.from_numpy(observations).flatten(0, -2))[1]
        return values.numpy().reshape(observations.shape[:-1])

    led_to = rollout.observations[1:].copy()
    truncated = np.argwhere(rollout.truncations).tolist()
    assert truncated
    for step, environment, last, _ in rollout.info.last_observations:
        assert [step, environment] in truncated
        led_to[step, environment] = last
    next_values = np.where(rollout.terminations, 0, value(led_to))
    expected = rollout.rewards + 0.99 * next_values - value(rollout.observations[:-1])
    np.testing.assert_allclose(batch["advantages"].reshape(16, 8), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(batch["returns"], batch["advantages"] + batch["values"])


@pytest.mark.parametrize("size", [7, 64])
@torch.no_grad()
def test_evaluating_in_parts_is_evaluating_at_once(size: int) -> None:
    parts, batch = collected(batch_size=size)
    expected = parts.learner.backend.log_probs_and_values(batch)
    found = parts.learner.evaluate_actions(batch)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_advantages_may_be_standardized_over_the_whole_rollout() -> None:
    parts, batch = collected(normalize_advantages="rollout", num_minibatches=2, num_epochs=3)
    minibatches = [*parts.learner._minibatches(batch, 1)]
    assert len(minibatches) == 6
    epoch = np.concatenate([minibatch["advantages"] for minibatch in minibatches[:2]])
    assert epoch.mean() == pytest.approx(0, abs=1e-6)
    assert epoch.std(ddof=1) == pytest.approx(1, abs=1e-5)
    assert minibatches[0]["advantages"].mean() != pytest.approx(0, abs=1e-6)
    assert batch["advantages"].std() != pytest.approx(1, abs=1e-2)


def test_minibatches_differ_between_iterations_and_repeat_with_the_seed() -> None:
    parts, batch = collected(num_minibatches=2, num_epochs=1)
    batch["row"] = np.arange(64)
    first, again, second = (
        [minibatch["row"].tolist() for minibatch in parts.learner._minibatches(batch, iteration)]
        for iteration in (1, 1, 2)
    )
    assert first == again
    assert first != second
    assert sorted(chain(*first)) == [*range(64)]
