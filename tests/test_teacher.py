"""Teachers: what they say of a student's states, and how a student learns from it."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from ppo import Learner, load_policy
from ppo.errors import CheckpointError, ConfigError
from ppo.extras.teacher import Teacher, divergence, parameters
from ppo.models.distributions import (
    Categorical,
    DiagonalGaussian,
    StateDependentGaussian,
)
from tests.running import assert_same_state, iterate, rows, running, train
from tests.worlds import Constant, Counting, Masked, Numbers

NORMALIZED = {"normalize_observations": True}


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def choices(x: Tensor) -> Categorical:
    return Categorical(x.view(5, 3, 4))


def normals(x: Tensor) -> DiagonalGaussian:
    return DiagonalGaussian(x[:15].view(5, 3), x[15:18])


def noisy(x: Tensor) -> DiagonalGaussian:
    return StateDependentGaussian(x[:15].view(5, 3), x[15:27].view(4, 3), draw(5, 4, seed=9))


def of_torch(distribution: Any) -> Any:
    """Return the same distribution by torch.distributions."""
    if isinstance(distribution, Categorical):
        return Independent(torch.distributions.Categorical(logits=distribution.logits), 1)
    mean = distribution.mean
    return Independent(Normal(mean, distribution.log_std.exp().expand_as(mean)), 1)


@pytest.mark.parametrize(("size", "make"), [(60, choices), (18, normals), (27, noisy)])
def test_the_divergence_and_its_gradient_are_torchs(size, make):
    teacher, student = draw(size, seed=1), draw(size, seed=2).requires_grad_()
    told = parameters(make(teacher))
    found = divergence(told, make(student))
    expected = kl_divergence(of_torch(make(teacher)), of_torch(make(student)))
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(x.sum(), student)[0] for x in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert torch.autograd.gradcheck(lambda x: divergence(told, make(x)), student)
    same = divergence(told, make(teacher))
    torch.testing.assert_close(same, torch.zeros(5).double())


def test_a_student_gets_the_teachers_distributions_and_their_gradient(tmp_path):
    """Those of the loaded policy, of raw observations, whatever the student's statistics are; the
    gradient is that of the own loss plus the coefficient times the mean divergence."""
    train(Counting, tmp_path / "a", 3, **NORMALIZED, learning_rate=0.1)
    policy = load_policy(tmp_path / "a", Counting)
    given = [Teacher(teacher=str(tmp_path / "a"), teacher_coef=0.7)]
    with running(Counting, tmp_path / "b", given, **NORMALIZED, hidden_size=16, seed=1) as run:
        iterate(run)
        batch = run.make_batch(run.collect())
        observations = run.rollout.observations[:-1].reshape(-1, 2)
        columns = [policy.log_probs(observations, torch.full((64, 1), x)) for x in range(5)]
        told = torch.stack([torch.from_numpy(x) for x in columns], 1)
        torch.testing.assert_close(batch["teacher"], told)
        learner = run.learner
        metrics = learner.gradient(batch)
        found = learner.gradients.clone()
        learner.gradients.zero_()
        distribution, values = learner.forward(batch)
        mean = (told.exp() * (told - distribution.log_probs[:, 0])).sum(1).mean()
        assert metrics["teacher_kl"] == pytest.approx(mean.item(), rel=1e-4) != 0
        own, _ = Learner.loss(learner, batch, distribution, values)
        torch.autograd.backward(own + 0.7 * mean)
        torch.testing.assert_close(found, learner.gradients, rtol=1e-4, atol=1e-6)


def test_the_coefficient_falls_to_zero_over_the_run(tmp_path):
    train(Counting, tmp_path / "a", 1)
    teacher = Teacher(teacher=str(tmp_path / "a"), teacher_coef="linear:2")
    found = []
    with running(Counting, tmp_path / "b", [teacher], total_steps=4 * 64) as run:
        for _ in range(4):
            iterate(run)
            found.append(teacher.coefficient)
    assert found == [2, 1.5, 1, 0.5]


def test_masks_are_the_students(tmp_path):
    train(Masked, tmp_path / "a", 1)
    given = [Teacher(teacher=str(tmp_path / "a"))]
    with running(Masked, tmp_path / "b", given) as run:
        batch = iterate(run)
        probabilities = batch["teacher"].exp()
        assert not probabilities[~batch["action_masks"]].any()
        torch.testing.assert_close(probabilities.sum(1), torch.ones(64))


def test_a_student_imitates_and_goes_on_imitating_when_resumed(tmp_path):
    train(Numbers, tmp_path / "a", 20, learning_rate=0.01)
    flags = {"learning_rate": 0.01, "teacher": str(tmp_path / "a"), "teacher_coef": 100, "seed": 1}
    train(Numbers, tmp_path / "whole", 30, **flags)
    found = [float(row["teacher_kl"]) for row in rows(tmp_path / "whole")]
    assert max(found[-5:]) < 0.05 * found[0]
    train(Numbers, tmp_path / "part", 7, **flags)
    train(Numbers, tmp_path / "part", 30, seed=1, learning_rate=0.01)
    assert_same_state(tmp_path / "whole", tmp_path / "part")


@pytest.mark.parametrize(
    ("source", "env", "flags", "words"),
    [
        ({}, Constant, {}, "actions"),
        ({"frame_stack": 2}, Counting, {}, r"observations \(4,\), this run has \(2,\)"),
        ({"model": "lstm"}, Counting, {}, "recurrent"),
        ({}, Counting, {"teacher": "gone"}, "--teacher=gone"),
        ({}, Counting, {"teacher": None, "teacher_coef": 0.5}, "--teacher_coef"),
    ],
)
def test_teachers_that_do_not_fit_are_refused(source, env, flags, words, tmp_path):
    train(Counting, tmp_path / "a", 1, **source)
    with pytest.raises((ConfigError, CheckpointError), match=words):
        train(env, tmp_path / "b", 1, **{"teacher": str(tmp_path / "a"), **flags})
    assert not (tmp_path / "b").exists()


def test_a_distribution_without_a_closed_form_is_refused():
    with pytest.raises(ConfigError, match="--teacher"):
        parameters(Normal(0, 1))
