"""Learning on worlds whose answers are known."""

import numpy as np
import pytest
import torch

from tests.running import trained

GAMMA, GAE_LAMBDA = 0.9, 0.95
CONSTANT = {
    "gamma": GAMMA,
    "gae_lambda": GAE_LAMBDA,
    "num_envs": 10,
    "num_steps": 20,
    "total_steps": 24_000,
    "learning_rate": "linear:1e-2",
}


def learned_value(env_name: str) -> float:
    parts = trained(env_name, **CONSTANT)
    return parts.model(torch.ones(1, 1))[1].item()


@pytest.mark.slow
def test_a_time_limit_is_no_failure() -> None:
    """Reward 1 for ever is worth 1 / (1 - gamma), wherever episodes are cut."""
    assert learned_value("Truncated-v0") == pytest.approx(1 / (1 - GAMMA), rel=0.02)


@pytest.mark.slow
def test_a_termination_is_the_end() -> None:
    """V is a fixed point: the mean over an episode's ten steps of the lambda-return
    G_t = 1 + gamma ((1 - lambda) V + lambda G_{t+1}), G_9 = 1, which is linear in V:
    G_t = a_t + b_t V."""
    a, b, sum_a, sum_b = 1.0, 0.0, 1.0, 0.0
    for _ in range(9):
        a, b = 1 + GAMMA * GAE_LAMBDA * a, GAMMA * (1 - GAE_LAMBDA) + GAMMA * GAE_LAMBDA * b
        sum_a, sum_b = sum_a + a, sum_b + b
    expected = (sum_a / 10) / (1 - sum_b / 10)
    assert expected == pytest.approx(4.283, abs=1e-3)
    assert learned_value("Terminated-v0") == pytest.approx(expected, rel=0.02)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("share_trunk", [False, True])
@pytest.mark.parametrize("normalize_advantages", ["minibatch", "rollout", "none"])
def test_a_contextual_bandit_is_solved(share_trunk: bool, normalize_advantages: str) -> None:
    parts = trained(
        "Bandit-v0",
        num_steps=32,
        total_steps=25_600,
        learning_rate=1e-3,
        share_trunk=share_trunk,
        normalize_advantages=normalize_advantages,
    )
    contexts = torch.eye(3)
    probabilities = parts.model(contexts)[0].logits.softmax(-1).squeeze(1)
    assert probabilities.diagonal().min() > 0.99


@pytest.mark.slow_but_first
@pytest.mark.parametrize("model", ["mlp", "lstm", "gru", "cnn", "cnn_small", "impala"])
def test_the_same_seed_gives_the_same_bits(model: str) -> None:
    reads_vectors = model in ("mlp", "lstm", "gru")
    env_name, is_small = ("Masked-v0", {}) if reads_vectors else ("Picture-v0", {"screen_size": 36})
    values = {
        "model": model,
        "num_steps": 8,
        "num_minibatches": 2,
        "total_steps": 192,
        "hidden_size": 16,
        **is_small,
    }
    first, second = (trained(env_name, **values).learner.weights for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, trained(env_name, **values, seed=1).learner.weights)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("share_trunk", [True, False])
def test_what_a_picture_shows_is_learned(precision: str, share_trunk: bool) -> None:
    parts = trained(
        "Picture-v0",
        model="cnn_small",
        hidden_size=32,
        screen_size=36,
        frame_stack=1,
        num_steps=16,
        total_steps=2560,
        learning_rate=1e-3,
        precision=precision,
        share_trunk=share_trunk,
    )
    last = sorted(parts.rollout.info.episodes)[-100:]
    assert np.mean([episode.episode_return for episode in last]) > 0.95


@pytest.mark.slow
def test_a_box_of_two_dimensions_is_learned() -> None:
    parts = trained(
        "Target-v0", num_steps=64, total_steps=51_200, learning_rate="linear:3e-3", entropy_coef=0.0
    )
    mean = parts.model(torch.ones(1, 2, 2))[0].mean
    torch.testing.assert_close(mean, torch.full((1, 2), 0.5), atol=0.05, rtol=0)
