"""Advantages against golden vectors, the definition as a slow loop, and Monte Carlo returns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ppo.algorithm import gae

NUMBERS, FLAGS, DISCOUNTS = st.floats(-10, 10), st.booleans(), st.floats(0, 1)


def generalized_advantages(
    rewards, values, next_values, terminations, truncations, gamma, gae_lambda
):
    """gae.generalized_advantages, by position: most tests have these tables in a tuple."""
    return gae.generalized_advantages(
        rewards,
        values,
        next_values,
        terminations=terminations,
        truncations=truncations,
        gamma=gamma,
        gae_lambda=gae_lambda,
    )


def column(*numbers):
    return np.array(numbers)[:, None]


def golden(terminated_at=None, truncated_at=None, last_value=None):
    """REFERENCE.md 4.2: five steps of one environment; the value after the last is 0.7."""
    rewards, values = column(1, 0, 2, -1, 0.5), column(0.5, 0.4, 0.3, 0.2, 0.1)
    next_values, steps = column(0.4, 0.3, 0.2, 0.1, 0.7), column(*range(5))
    if last_value is not None:
        next_values[truncated_at] = last_value
    endings = steps == terminated_at, steps == truncated_at
    return generalized_advantages(rewards, values, next_values, *endings, 0.99, 0.95)[:, 0]


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        pytest.param({}, [2.417229, 1.617468, 1.829312, -0.073033, 1.093], id="A-no-ending"),
        pytest.param(
            {"terminated_at": 2}, [2.302847, 1.495850, 1.7, -0.073033, 1.093], id="B-terminated"
        ),
        pytest.param(
            {"truncated_at": 2, "last_value": 0.9},
            [3.090972, 2.333836, 2.591, -0.073033, 1.093],
            id="C-truncated",
        ),
    ],
)
def test_golden_advantages(ending, expected):
    np.testing.assert_allclose(golden(**ending), expected, atol=6e-7)


@st.composite
def rollouts(draw):
    """Draw rewards, values, next_values, terminations, truncations: (T, N).

    next_values are the values of the next row within an episode."""
    shape = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    rewards, values, next_values = (draw(arrays(float, shape, elements=NUMBERS)) for _ in range(3))
    terminations, truncations = (draw(arrays(bool, shape, elements=FLAGS)) for _ in range(2))
    goes_on = ~(terminations | truncations)[:-1]
    next_values[:-1][goes_on] = values[1:][goes_on]
    return rewards, values, next_values, terminations, truncations


def rest_of_episode(t, terminations, truncations):
    """The steps from t to the last of t's episode, for the endings of one environment."""
    for step in range(t, len(terminations)):
        yield step
        if terminations[step] or truncations[step]:
            return


def slowly(advantage, rollout):
    """Call advantage(t, rewards, ...) for every step of every environment alone: (T, N)."""
    T, N = rollout[0].shape
    return [[advantage(t, *(table[:, n] for table in rollout)) for n in range(N)] for t in range(T)]


@given(rollouts(), DISCOUNTS, DISCOUNTS)
def test_advantages_are_the_discounted_sum_of_the_episodes_later_errors(rollout, gamma, gae_lambda):
    def advantage(t, rewards, values, next_values, terminations, truncations):
        total = 0.0
        for step in rest_of_episode(t, terminations, truncations):
            value_after = 0.0 if terminations[step] else next_values[step]
            total += (gamma * gae_lambda) ** (step - t) * (
                rewards[step] + gamma * value_after - values[step]
            )
        return total

    np.testing.assert_allclose(
        generalized_advantages(*rollout, gamma, gae_lambda), slowly(advantage, rollout), atol=1e-9
    )


@given(rollouts(), DISCOUNTS)
def test_lambda_1_gives_the_monte_carlo_return_minus_the_value(rollout, gamma):
    def advantage(t, rewards, values, next_values, terminations, truncations):
        steps = list(rest_of_episode(t, terminations, truncations))
        value_after = 0.0 if terminations[steps[-1]] else next_values[steps[-1]]
        return sum(gamma**k * r for k, r in enumerate([*rewards[steps], value_after])) - values[t]

    np.testing.assert_allclose(
        generalized_advantages(*rollout, gamma, 1.0), slowly(advantage, rollout), atol=1e-9
    )


def test_advantages_keep_the_precision_of_the_learner():
    table, flags = np.ones((3, 2), np.float32), np.zeros((3, 2), bool)
    assert generalized_advantages(table, table, table, flags, flags, 0.99, 0.95).dtype == np.float32
