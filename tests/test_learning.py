"""Learning on worlds whose answers are known."""

import numpy as np
import pytest
import torch

from ppo.algorithm.learner import Learner
from ppo.config.config import Config
from tests.running import make_training, trained

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
    training = trained(env_name, **CONSTANT)
    return training.model(torch.ones(1, 1))[1].item()


def test_a_time_limit_is_no_failure() -> None:
    """Reward 1 for ever is worth 1 / (1 - gamma), wherever episodes are cut."""
    assert learned_value("Truncated-v0") == pytest.approx(1 / (1 - GAMMA), rel=0.02)


def test_a_termination_is_the_end() -> None:
    """V is a fixed point: the mean over an episode's ten steps of the lambda-return
    G_t = 1 + gamma ((1 - lambda) V + lambda G_{t+1}), G_9 = 1, which is linear in V: G_t = a_t + b_t V."""
    a, b, sum_a, sum_b = 1.0, 0.0, 1.0, 0.0
    for _ in range(9):
        a, b = 1 + GAMMA * GAE_LAMBDA * a, GAMMA * (1 - GAE_LAMBDA) + GAMMA * GAE_LAMBDA * b
        sum_a, sum_b = sum_a + a, sum_b + b
    expected = (sum_a / 10) / (1 - sum_b / 10)
    assert expected == pytest.approx(4.283, abs=1e-3)
    assert learned_value("Terminated-v0") == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("share_trunk", [False, True])
@pytest.mark.parametrize("normalize_advantages", ["minibatch", "rollout", "none"])
def test_a_contextual_bandit_is_solved(share_trunk: bool, normalize_advantages: str) -> None:
    training = trained(
        "Bandit-v0",
        num_steps=32,
        total_steps=25_600,
        learning_rate=3e-3,
        share_trunk=share_trunk,
        normalize_advantages=normalize_advantages,
    )
    contexts = torch.eye(3)
    probabilities = training.model(contexts)[0].logits.softmax(-1).squeeze(1)
    assert probabilities.diagonal().min() > 0.99


@pytest.mark.parametrize("model", ["mlp", "lstm", "cnn", "cnn_small", "impala"])
def test_the_same_seed_gives_the_same_bits(model: str) -> None:
    env_name, is_small = (
        ("Masked-v0", {}) if model in ("mlp", "lstm") else ("Picture-v0", {"screen_size": 36})
    )
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


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("share_trunk", [True, False])
def test_what_a_picture_shows_is_learned(precision: str, share_trunk: bool) -> None:
    training = trained(
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
    assert np.mean([episode[0] for episode in training.recent]) > 0.95


def test_clipped_rewards_are_learned_from_and_the_games_own_are_reported() -> None:
    training = make_training("Counting-v0", clip_rewards=True, num_minibatches=1)
    report = training.make_worker(env_indices=range(8)).collect(1)
    unclipped = training.rollout.rewards.copy()
    assert unclipped.min() > 1  # Counting pays 10 and more
    rewards = []
    make_batch = training.learner.make_batch
    training.learner.make_batch = lambda *tables: rewards.append(tables[2]) or make_batch(*tables)
    training.learn(report)
    np.testing.assert_array_equal(rewards[0], np.ones_like(unclipped))
    np.testing.assert_array_equal(training.rollout.rewards, unclipped)
    assert min(episode.episode_return for episode in report.episodes) > 10


def test_a_box_of_two_dimensions_is_learned() -> None:
    training = trained(
        "Target-v0", num_steps=64, total_steps=51_200, learning_rate="linear:3e-3", entropy_coef=0.0
    )
    mean = training.model(torch.ones(1, 2, 2))[0].mean
    torch.testing.assert_close(mean, torch.full((1, 2), 0.5), atol=0.05, rtol=0)


def test_before_the_first_step_the_learner_sees_the_policy_that_acted() -> None:
    """Ratios are 1 then: no divergence, nothing clipped."""
    training = make_training("Counting-v0", num_minibatches=1, num_epochs=1)
    report = training.make_worker(env_indices=range(8)).collect(1)
    metrics = training.learn(report)
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["clip_fraction"] == 0


def test_the_last_observation_of_a_truncated_episode_is_bootstrapped_from() -> None:
    """One transition each: A = r + gamma V(what the action led to) - V(before), and no value after a termination."""
    training = make_training("Counting-v0", num_envs=8, num_steps=16, gae_lambda=0.0)
    report = training.make_worker(env_indices=range(8)).collect(1)
    rollout, model = training.rollout, training.model
    batch = training.learner.make_batch(
        rollout, rollout.observations, rollout.rewards, report.last_observations
    )

    def value(observations: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return (
                model(torch.from_numpy(observations).flatten(0, -2))[1]
                .numpy()
                .reshape(observations.shape[:-1])
            )

    led_to = rollout.observations[1:].copy()
    truncated = np.argwhere(rollout.truncations).tolist()
    assert truncated
    for step, environment, last, _ in report.last_observations:
        assert [step, environment] in truncated
        led_to[step, environment] = last
    next_values = np.where(rollout.terminations, 0, value(led_to))
    expected = rollout.rewards + 0.99 * next_values - value(rollout.observations[:-1])
    np.testing.assert_allclose(
        batch["advantages"].numpy().reshape(16, 8), expected, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(batch["returns"], batch["advantages"] + batch["values"])


def test_kl_beyond_the_target_ends_an_iterations_steps() -> None:
    counts = []
    for target_kl in (None, 0.01):
        training = make_training(
            "Counting-v0", learning_rate=0.5, target_kl=target_kl, num_epochs=10
        )
        training.learn(training.make_worker(env_indices=range(8)).collect(1))
        counts.append(int(training.learner.optimizer.state_dict()["state"][0]["step"]))
    assert counts[0] == 40
    assert counts[1] <= 2


def make_learner(**values: object) -> Learner:
    return make_training("Bandit-v0", **values).learner


def test_the_learning_rate_falls_linearly_to_zero() -> None:
    training = make_training(
        "Bandit-v0", learning_rate="linear:1e-3", num_envs=1, num_steps=8, total_steps=80
    )
    worker = training.make_worker(env_indices=range(1))
    rates = [
        training.learn(worker.collect(iteration))["learning_rate"] for iteration in range(1, 11)
    ]
    np.testing.assert_allclose(rates, [1e-3 * (1 - i / 10) for i in range(10)])


def test_gradients_are_clipped_to_the_global_norm() -> None:
    learner = make_learner(max_grad_norm=0.5)
    learner.gradients[:] = torch.randn(
        len(learner.gradients), generator=torch.Generator().manual_seed(0)
    )
    before = learner.gradients.clone()
    norm = learner._clip_gradients()
    assert norm == pytest.approx(float(before.norm()))
    torch.testing.assert_close(learner.gradients, before * 0.5 / before.norm())
    assert make_learner(max_grad_norm=0.5)._clip_gradients() == 0


def test_adam_has_the_epsilon_of_baselines() -> None:
    assert make_learner().optimizer.eps == 1e-5


@pytest.mark.parametrize(("name", "factor"), [("value_coef", 3.0), ("entropy_coef", 7.0)])
def test_the_loss_is_linear_in_its_weights(name: str, factor: float) -> None:
    """total = policy + c_v value - c_e entropy, so that the change is (factor - 1) c times the term."""
    term = {"value_coef": "value_loss", "entropy_coef": "entropy"}[name]
    sign = {"value_coef": 1, "entropy_coef": -1}[name]
    coefficient = getattr(Config, name)
    totals = []
    for scale in (1.0, factor):
        training = make_training("Counting-v0", **{name: coefficient * scale})
        report = training.make_worker(env_indices=range(8)).collect(1)
        rollout = training.rollout
        batch = training.learner.make_batch(
            rollout, rollout.observations, rollout.rewards, report.last_observations
        )
        total, metrics = training.learner.loss(batch)
        totals.append(total.item())
    expected = sign * (factor - 1) * coefficient * metrics[term].item()
    assert totals[1] - totals[0] == pytest.approx(expected, rel=1e-3)


def test_statistics_change_after_a_rollout_and_not_within_it() -> None:
    training = make_training("Counting-v0", normalize_observations=True, normalize_rewards=True)
    normalize = training.normalize_observation
    worker = training.make_worker(env_indices=range(8))
    report = worker.collect(1)
    assert normalize.shift.tolist() == [0, 0]
    training.learn(report)
    first = training.rollout.observations[:-1].reshape(-1, 2)
    np.testing.assert_allclose(normalize.shift, first.mean(axis=0), rtol=1e-3)
    assert worker.sampler.normalize.shift.tolist() == normalize.shift.tolist()
    assert training.normalize_reward.statistics.count == pytest.approx(8 * 128, abs=1e-3)
