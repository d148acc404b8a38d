"""The learner: its batch, coefficients and gradient steps, by losses whose gradients are known."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ppo.errors import TrainingError
from ppo.learner import Learner
from ppo.numpy_learner import NumpyLearner
from tests.running import Own, Slope, disturb, iterate, make_batch, make_learner, running
from tests.test_imitation import Signs
from tests.worlds import Counting, Film, Masked, Numbers, Reusing

ONE_STEP = {"num_epochs": 1, "num_minibatches": 1}


def fall(learner: Any, iteration: int = 1, **tables: Any) -> tuple[float, dict[str, Any]]:
    """Update once, by gradients that are all the same; return how far each weight has fallen, and
    the metrics."""
    before = learner.weights.clone()
    metrics = learner.update({**make_batch(learner), **tables}, iteration)
    far = before - learner.weights
    assert far.std() < 1e-5
    return far.mean().item(), metrics


@pytest.mark.parametrize("env", [Counting, Reusing, Film])
def test_a_truncated_step_bootstraps_from_its_own_last_observation(env, tmp_path):
    """A = r + gamma V(what the action led to) - V(before), and no value after a termination."""
    flags = {"gae_lambda": 0.0, "num_envs": 8, "normalize_observations": env is not Film}
    with running(env, tmp_path, **flags) as run:
        disturb(run.model)
        if env is not Film:  # whose numbers are large: else all values would be the same
            run.normalize.statistics.mean[:] = [2**15, 3]
            run.normalize.statistics.variance[:] = [2.0**28, 4]
        run.publish()
        rollout = run.collect()
        batch = run.make_batch(rollout)

        def value(observations: Any) -> Any:
            rows = run.normalize(observations).reshape(-1, *rollout.observations[0, 0].shape)
            with torch.no_grad():
                values = run.learner.evaluate({"observations": run.learner.table(rows)})[1]
            return np.asarray(values).reshape(observations.shape[:2])

        seen, led_to = rollout.observations[:-1], rollout.observations[1:].copy()
        if env is Film:  # the newest image is one brighter
            last = np.concatenate([seen[..., 1:], seen[..., -1:] + 1], -1)
        else:
            last = seen + np.array([0, 1])
        led_to[rollout.truncations] = last[rollout.truncations]
        next_values = np.where(rollout.terminations, 0, value(led_to))
        expected = rollout.rewards + 0.99 * next_values - value(seen)
        found = batch["advantages"].reshape(16, 8)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(batch["returns"], batch["advantages"] + batch["values"])
        assert rollout.truncations.any()
        assert rollout.terminations.any()


class Recording(Slope):
    """Remember the minibatches."""

    def gradient(self, minibatch: Any) -> Any:
        self.seen = [*getattr(self, "seen", []), minibatch]
        return super().gradient(minibatch)


@pytest.mark.parametrize("how", ["minibatch", "rollout", "none"])
def test_advantages_are_standardized_where_the_flag_says(how):
    learner = make_learner(Recording, normalize_advantages=how)
    batch = make_batch(learner)
    advantages = batch["advantages"].clone()
    learner.update(batch, 1)
    parts = [x["advantages"] for x in learner.seen[:2]]
    for part in parts if how == "minibatch" else [torch.cat(parts)]:
        assert (abs(part.mean()) < 1e-6) == (how != "none")
        assert (abs(part.std() - 1) < 1e-5) == (how != "none")
    assert (abs(parts[0].mean()) < 1e-6) == (how == "minibatch")
    assert torch.equal(batch["advantages"], advantages)


@pytest.mark.parametrize(
    ("learning_rate", "rates"),
    [
        (1e-2, [1e-2] * 4),
        ("linear:1e-2", [1e-2, 0.75e-2, 0.5e-2, 0.25e-2]),
        (lambda remaining: remaining**2, [1, 0.5625, 0.25, 0.0625]),
    ],
)
def test_a_scheduled_learning_rate_is_that_of_the_present_iteration(learning_rate, rates):
    learner = make_learner(Slope, learning_rate=learning_rate, total_steps=4 * 64)
    for iteration, rate in enumerate(rates, 1):
        far, metrics = fall(learner, iteration)
        assert far == pytest.approx(4 * rate, rel=1e-4)
        assert metrics["learning_rate"] == pytest.approx(rate)


def test_scheduled_coefficients_reach_the_loss():
    """Clips of values that follow those of ratios, and the loss by its terms."""
    flags = {"clip_coef": "linear:0.4", "entropy_coef": lambda remaining: 0.02 * remaining}
    learner = make_learner(**flags, value_coef=0.7, total_steps=4 * 64)
    batch = make_batch(learner)
    batch["log_probs"] += torch.linspace(-1, 1, 64)
    ratios = (torch.log(torch.ones(64)) - torch.linspace(-1, 1, 64)).exp()
    for iteration, remaining in enumerate((1, 0.75, 0.5, 0.25), 1):
        learner.set_coefficients(remaining)
        found = {name: float(x) for name, x in learner.gradient(batch).items()}
        clipped = ((ratios - 1).abs() > 0.4 * remaining).float().mean().item()
        assert found["clip_fraction"] == pytest.approx(clipped)
        parts = found["policy_loss"] + 0.7 * found["value_loss"]
        bonus = 0.02 * remaining * found["entropy"]
        assert found["loss"] == pytest.approx(parts - bonus, abs=1e-6)
        assert learner.coefficients.clip_value_coef == pytest.approx(0.4 * remaining)
        assert learner.update(batch, iteration)["clip_coef"] == pytest.approx(0.4 * remaining)
    learner.change(replace(learner.config, clip_value_coef=None))
    learner.set_coefficients(1)
    assert learner.coefficients.clip_value_coef is None


def test_old_log_probabilities_stay_those_of_the_policy_that_acted():
    learner = make_learner(Recording, num_minibatches=1, num_epochs=3, learning_rate=0.1)
    batch = make_batch(learner)
    learner.update(batch, 1)
    assert len(learner.seen) == 3
    for minibatch in learner.seen:
        found = np.sort(minibatch["log_probs"])
        np.testing.assert_array_equal(found, np.sort(batch["log_probs"]))


@pytest.mark.parametrize("env", [Masked, Numbers])
@pytest.mark.parametrize("model", ["mlp", "gru"])
def test_the_policy_that_acted_has_not_moved_before_the_first_step(env, model, tmp_path):
    """Also among what masks allow, and where actions are clipped to their bounds."""
    with running(env, tmp_path, model=model) as run:
        disturb(run.model)
        run.publish()
        metrics = run.learner.gradient(run.make_batch(run.collect()))
        assert abs(metrics["approx_kl"]) < 1e-6
        if env is Numbers:
            assert abs(run.rollout.actions).max() > 1


@pytest.mark.parametrize(
    ("kls", "steps"), [((0, 0.7, 0.7, 0.7), 4), ((0, 0.8, 0, 0), 1), ((9, 0, 0.8, 0), 2)]
)
def test_no_minibatch_is_learned_from_once_the_kl_exceeds_its_target(kls, steps):
    """By a half. The first step, by the policy that acted, is always taken."""

    class Told(Slope):
        pass

    Told.kls = kls
    learner = make_learner(Told, learning_rate=0.1, target_kl=0.5)
    far, metrics = fall(learner)
    assert far == pytest.approx(0.1 * steps, rel=1e-4)
    assert metrics["gradient_steps"] == steps


def test_gradients_are_clipped_to_the_global_norm_before_a_step():
    learner = make_learner(Slope, learning_rate=1.0, max_grad_norm=0.5, **ONE_STEP)
    size = len(learner.weights) ** 0.5  # the norm of ones
    far, metrics = fall(learner)
    assert far * size == pytest.approx(0.5, rel=1e-4)
    assert metrics["grad_norm"] == pytest.approx(size)
    learner.gradients.zero_()
    assert learner.clip_gradient() == 0
    assert not learner.gradients.any()


class Broken(Slope):
    """Have a finite loss whose gradient is not, in some steps."""

    bad: Any = ()

    def loss(self, minibatch: Any, distribution: Any, values: Any) -> Any:
        loss, metrics = super().loss(minibatch, distribution, values)
        if self.calls in self.bad:
            loss = loss + (0 * next(self.model.parameters()).sum()).sqrt()
        return loss, metrics


def test_a_gradient_that_is_not_finite_is_left_out():
    learner = make_learner(Broken, learning_rate=0.1)
    learner.bad = (2, 5, 6)
    far, metrics = fall(learner)
    assert far == pytest.approx(0.3, rel=1e-4)
    assert (metrics["gradient_steps"], metrics["skipped_steps"]) == (3, 1)
    assert np.isfinite(metrics["loss"])
    assert fall(learner, 2)[1]["skipped_steps"] == 2
    learner.bad = range(99)
    with pytest.raises(TrainingError, match="only non-finite gradients"):
        fall(learner, 3)


@pytest.mark.parametrize("name", ["AdamW", "RMSprop", "SGD"])
def test_frozen_weights_stand_still_whatever_the_optimizer(name, tmp_path):
    momentum = {} if name == "AdamW" else {"momentum": 0.9}
    make = partial(getattr(torch.optim, name), weight_decay=0.1, **momentum)
    steps = {"make_optimizer": lambda self: make([self.parameter], lr=0.1)}
    learner = type("Decaying", (Learner,), steps)
    with running(Signs, tmp_path, model=Own, learner=learner, batch_size=21) as run:
        own = dict(run.model.named_parameters())
        before = {name: x.detach().clone() for name, x in own.items()}
        iterate(run)
        still = {name for name, x in own.items() if torch.equal(x, before[name])}
        assert still == {"frozen"}


@pytest.mark.parametrize("kind", [Learner, NumpyLearner])
def test_advantages_of_a_rollout_are_scaled_by_those_of_present_agents(kind):
    learner = make_learner(kind, normalize_advantages="rollout", **ONE_STEP)
    present = torch.arange(64) % 2 == 0
    batch = {**make_batch(learner), "present": present}
    batch["advantages"][~present] = 1e6
    (minibatch,) = learner._minibatches(batch, 1)
    advantages = np.asarray(minibatch["advantages"])
    assert len(advantages) == 32
    np.testing.assert_allclose([advantages.mean(), advantages.std(ddof=1)], [0, 1], atol=1e-5)
    assert (batch["advantages"][~present] == 1e6).all()
