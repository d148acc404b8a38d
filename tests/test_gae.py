"""Advantages against golden vectors, the definition as a slow loop, and Monte Carlo returns."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ppo.gae import generalized_advantages

NUMBERS, FLAGS, DISCOUNTS = st.floats(-10, 10), st.booleans(), st.floats(0, 1)


def advantages_of(rollout: Any, gamma: float, gae_lambda: float) -> Any:
    rewards, values, next_values, terminations, truncations = rollout
    return generalized_advantages(
        rewards,
        values,
        next_values,
        terminations=terminations,
        truncations=truncations,
        gamma=gamma,
        gae_lambda=gae_lambda,
    )


def column(*numbers: float) -> Any:
    return np.array(numbers)[:, None]


@pytest.mark.parametrize(
    ("terminated_at", "truncated_at", "expected"),
    [
        (None, None, [2.417229, 1.617468, 1.829312, -0.073033, 1.093]),
        (2, None, [2.302847, 1.495850, 1.7, -0.073033, 1.093]),
        (None, 2, [3.090972, 2.333836, 2.591, -0.073033, 1.093]),
    ],
)
def test_golden_advantages(terminated_at, truncated_at, expected):
    """Five steps of one environment; the value after the last is 0.7, after a truncation 0.9."""
    rewards, values = column(1, 0, 2, -1, 0.5), column(0.5, 0.4, 0.3, 0.2, 0.1)
    next_values, steps = column(0.4, 0.3, 0.2, 0.1, 0.7), column(*range(5))
    next_values[steps == truncated_at] = 0.9
    rollout = rewards, values, next_values, steps == terminated_at, steps == truncated_at
    np.testing.assert_allclose(advantages_of(rollout, 0.99, 0.95)[:, 0], expected, atol=6e-7)


@st.composite
def rollouts(draw: Any) -> tuple[Any, ...]:
    """Draw rewards, values, next_values, terminations, truncations: (T, N).

    next_values are the values of the next row within an episode."""
    shape = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    rewards, values, next_values = (draw(arrays(float, shape, elements=NUMBERS)) for _ in range(3))
    terminations, truncations = (draw(arrays(bool, shape, elements=FLAGS)) for _ in range(2))
    goes_on = ~(terminations | truncations)[:-1]
    next_values[:-1][goes_on] = values[1:][goes_on]
    return rewards, values, next_values, terminations, truncations


def rest_of_episode(t: int, terminations: Any, truncations: Any) -> Iterator[int]:
    """Yield the steps from t to the last of t's episode."""
    for step in range(t, len(terminations)):
        yield step
        if terminations[step] or truncations[step]:
            return


def slowly(advantage: Callable[..., float], rollout: tuple[Any, ...]) -> list[list[float]]:
    """Call advantage(t, rewards, ...) for every step of every environment alone: (T, N)."""
    T, N = rollout[0].shape
    return [[advantage(t, *(table[:, n] for table in rollout)) for n in range(N)] for t in range(T)]


@given(rollouts(), DISCOUNTS, DISCOUNTS)
def test_advantages_are_the_discounted_sum_of_the_episodes_later_errors(rollout, gamma, gae_lambda):
    def advantage(
        t: int, rewards: Any, values: Any, next_values: Any, terminations: Any, truncations: Any
    ) -> float:
        total = 0.0
        for step in rest_of_episode(t, terminations, truncations):
            value_after = 0.0 if terminations[step] else next_values[step]
            error = rewards[step] + gamma * value_after - values[step]
            total += (gamma * gae_lambda) ** (step - t) * error
        return total

    found = advantages_of(rollout, gamma, gae_lambda)
    np.testing.assert_allclose(found, slowly(advantage, rollout), atol=1e-9)
