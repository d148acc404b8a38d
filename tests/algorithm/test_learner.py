"""The learner: losses of your own, schedules, optimizers, minibatches and gradient steps."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest
import safetensors.torch
import torch
from torch import Tensor

from ppo import Config, Learner, load_policy, train
from ppo.algorithm import losses
from ppo.envs.seeding import Stream, integer_seed
from tests.running import CARTPOLE, TINY, learn, make_components, metrics, worker_of


def iterations(count: int, **values: Any) -> dict[str, Any]:
    """Values of a run of as many tiny iterations."""
    sizes = {**TINY, **values}
    return {**sizes, "total_steps": count * sizes["num_envs"] * sizes["num_steps"]}


def test_the_clip_of_values_follows_that_of_ratios_also_after_a_change() -> None:
    parts = make_components("CartPole-v1", clip_coef=0.3, clip_value_coef="auto")
    parts.learner.remaining = 1.0
    parts.learner.set_coefficients()
    assert parts.learner.clip_value_coef == 0.3
    parts.change_settings({"clip_coef": "linear:0.2"})
    parts.learner.remaining = 0.5
    parts.learner.set_coefficients()
    assert parts.learner.clip_value_coef == parts.learner.clip_coef == 0.1
    parts.change_settings({"clip_value_coef": None})
    parts.learner.remaining = 0.5
    parts.learner.set_coefficients()
    assert parts.learner.clip_value_coef is None


class Imitate(Learner):
    """Learn to take action 0 always."""

    def loss(
        self, minibatch: dict[str, Tensor], distribution: Any, values: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        loss = -distribution.log_prob(torch.zeros_like(minibatch["actions"])).mean()
        return loss, {
            "surprise": loss.detach(),
            "rows": torch.tensor(float(len(minibatch["actions"]))),
        }


def test_a_loss_of_the_user_is_learned_and_its_metrics_are_logged(tmp_path: Path) -> None:
    config = Config(
        **iterations(6, run_dir=str(tmp_path), num_epochs=8, learning_rate=1e-2, eval_episodes=5)
    )
    summary = train(config, learner=Imitate)
    assert (
        summary.evaluation.returns
        == load_policy(summary.checkpoint).evaluate(5).returns
        == always_0(5)
    )
    rows = metrics(tmp_path)
    assert float(rows[-1]["surprise"]) < 0.1 < 0.4 < float(rows[0]["surprise"])
    assert {row["rows"] for row in rows} == {"16"}


def always_0(episodes: int) -> list[float]:
    """Return what always taking action 0 earns in an evaluation of CartPole."""
    env, returns = gymnasium.make("CartPole-v1"), []
    for episode in range(episodes):
        env.reset(seed=integer_seed(0, Stream.EVALUATION, episode))
        returns.append(1.0)
        while not env.step(0)[2]:
            returns[-1] += 1
    return returns


class Slope(Learner):
    """Take the sum of all weights as the loss, so that every gradient is 1, and KLs from a list."""

    kls: tuple[float, ...] = (0.0,) * 100

    def loss(
        self, minibatch: dict[str, Tensor], distribution: Any, values: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.calls = getattr(self, "calls", 0) + 1
        return sum(p.sum() for p in self.model.parameters()), {
            "approx_kl": torch.tensor(self.kls[self.calls - 1]),
            "calls": self.calls,  # a number is as good as a tensor
        }


def descent(
    folder: Path, learner: type[Learner] = Slope, **values: Any
) -> tuple[float, list[float]]:
    """Train; return how far each weight has fallen, and the learning rates."""
    initial: list[Tensor] = []

    def make_learner(model: Any, config: Config, ranks: Any) -> Learner:
        made = learner(model, config, ranks)
        initial.append(made.weights.clone())
        learners.append(made)
        return made

    learners: list[Learner] = []
    train(Config(**{**values, "run_dir": str(folder), "max_grad_norm": 0}), learner=make_learner)
    far = initial[0] - learners[0].weights
    assert far.std() < 1e-5
    return far.mean().item(), [float(row["learning_rate"]) for row in metrics(folder)]


def test_linear_schedules_fall_with_the_remaining_iterations(tmp_path: Path) -> None:
    values = {
        "clip_coef": "linear:0.4",
        "entropy_coef": "linear:0.02",
        "learning_rate": "linear:1e-3",
    }
    train(Config(**iterations(4, **values, value_coef=0.5, run_dir=str(tmp_path))))
    for row, left in zip(metrics(tmp_path), (1, 0.75, 0.5, 0.25), strict=True):
        number = {name: float(x) for name, x in row.items() if x}
        assert number["learning_rate"] == pytest.approx(1e-3 * left)
        assert number["clip_coef"] == pytest.approx(0.4 * left)
        bonus = number["policy_loss"] + 0.5 * number["value_loss"] - number["loss"]
        assert bonus / number["entropy"] == pytest.approx(0.02 * left, rel=1e-2)


def test_schedules_may_be_functions(tmp_path: Path) -> None:
    def clip_coef(left: float) -> float:
        return 0.1 + 0.2 * left

    values = {
        "clip_coef": clip_coef,
        "learning_rate": lambda left: 1e-3 * left**2,
        "entropy_coef": lambda left: 0.01,
    }
    train(Config(**iterations(5, **values, run_dir=str(tmp_path))))
    rows = metrics(tmp_path)
    assert [float(row["clip_coef"]) for row in rows] == pytest.approx([0.3, 0.26, 0.22, 0.18, 0.14])
    assert [float(row["learning_rate"]) for row in rows] == pytest.approx(
        [1e-3, 6.4e-4, 3.6e-4, 1.6e-4, 4e-5]
    )
    assert "clip_coef" in json.loads((tmp_path / "config.json").read_text())["clip_coef"]


def test_the_clip_coefficients_of_schedules_reach_the_loss(tmp_path: Path) -> None:
    """With a coefficient that nothing keeps to, or that everything does."""
    values = {
        "num_epochs": 4,
        "learning_rate": 1e-2,
        "clip_coef": lambda left: 1e-6 if left < 1 else 1e6,
    }
    train(Config(**iterations(2, **values, num_steps=32, run_dir=str(tmp_path))))
    first, second = (float(row["clip_fraction"]) for row in metrics(tmp_path))
    assert first == 0
    assert second > 0.5


@pytest.mark.parametrize("target_kl", [None, 0.04])
def test_an_adaptive_learning_rate_falls_where_the_kl_is_high_and_rises_where_it_is_low(
    tmp_path: Path, target_kl: float | None
) -> None:
    goal = target_kl or 0.01

    class Told(Slope):
        kls = tuple(goal * x for x in (1.6, 1.4, 0.6, 0.4, 0.4, 0.4, 9, 0.4))

    values = iterations(
        8, learning_rate="adaptive:4e-3", optimizer="torch.optim:SGD", target_kl=target_kl
    )
    far, rates = descent(tmp_path, Told, **values)
    expected = [4e-3, *[4e-3 / 1.5] * 3, 4e-3, 6e-3, 9e-3, 6e-3]
    assert rates == pytest.approx(expected, rel=1e-5)
    assert far == pytest.approx(sum(expected), abs=1e-5)


@pytest.mark.parametrize(("kl", "start", "end"), [(0.0, 5e-3, 1e-2), (1.0, 2e-5, 1e-5)])
def test_an_adaptive_learning_rate_has_bounds(
    tmp_path: Path, kl: float, start: float, end: float
) -> None:
    class Told(Slope):
        kls = (kl,) * 9

    rates = descent(tmp_path, Told, **iterations(5, learning_rate=f"adaptive:{start}"))[1]
    assert rates[0] == start
    assert rates[-2:] == pytest.approx([end, end])


@pytest.mark.parametrize(("size", "steps"), [(16, 3), (33, 1), (7, 5)])
def test_the_last_minibatch_takes_the_remaining_rows(tmp_path: Path, size: int, steps: int) -> None:
    """33 rows: of 16 the last minibatch has a single one, which cannot be standardised."""
    values = iterations(
        2, num_envs=3, num_steps=11, batch_size=size, num_epochs=2, run_dir=str(tmp_path)
    )
    tensors = safetensors.torch.load_file(train(Config(**values)).checkpoint)
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    for row in metrics(tmp_path):
        assert int(row["gradient_steps"]) == 2 * steps
        assert all(math.isfinite(float(x)) for x in row.values() if x)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "RMSprop"])
def test_optimizers_train(tmp_path: Path, optimizer: str) -> None:
    values = {**CARTPOLE, "optimizer": f"torch.optim:{optimizer}", "run_dir": str(tmp_path)}
    values["learning_rate"] = 0.3 if optimizer == "SGD" else 3e-3
    summary = train(Config(**{**values, "total_steps": 8192}))
    rows = metrics(tmp_path)
    assert float(rows[-1]["episode_return_mean"]) > 1.5 * float(rows[0]["episode_return_mean"])
    assert load_policy(summary.checkpoint).evaluate(6, num_envs=4) == summary.evaluation


def test_before_the_first_step_the_learner_sees_the_policy_that_acted() -> None:
    """Ratios are 1 then: no divergence, nothing clipped."""
    parts = make_components("Counting-v0", num_minibatches=1, num_epochs=1)
    info = worker_of(parts, 8).collect(1)
    metrics = learn(parts, info)
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["clip_fraction"] == 0


def test_kl_beyond_the_target_ends_an_iterations_steps() -> None:
    counts = []
    for target_kl in (None, 0.01):
        parts = make_components(
            "Counting-v0", learning_rate=0.5, target_kl=target_kl, num_epochs=10
        )
        learn(parts, worker_of(parts, 8).collect(1))
        counts.append(int(parts.learner.optimizer.state_dict()["state"][0]["step"]))
    assert counts[0] == 40
    assert counts[1] <= 2


def plain_learner(**values: object) -> Learner:
    return make_components("Bandit-v0", **values).learner


def test_gradients_are_clipped_to_the_global_norm() -> None:
    learner = plain_learner(max_grad_norm=0.5)
    learner.gradients[:] = torch.randn(
        len(learner.gradients), generator=torch.Generator().manual_seed(0)
    )
    before = learner.gradients.clone()
    norm = learner.backend.clip_gradients()
    assert norm == pytest.approx(float(before.norm()))
    torch.testing.assert_close(learner.gradients, before * 0.5 / before.norm())
    assert plain_learner(max_grad_norm=0.5).backend.clip_gradients() == 0


def test_adam_has_the_epsilon_of_baselines() -> None:
    assert plain_learner().optimizer.eps == 1e-5


@pytest.mark.parametrize(("name", "factor"), [("value_coef", 3.0), ("entropy_coef", 7.0)])
def test_the_loss_is_linear_in_its_weights(name: str, factor: float) -> None:
    """total = policy + c_v value - c_e entropy: the change is (factor - 1) c times the term."""
    term = {"value_coef": "value_loss", "entropy_coef": "entropy"}[name]
    sign = {"value_coef": 1, "entropy_coef": -1}[name]
    coefficient = getattr(Config, name)
    totals = []
    for scale in (1.0, factor):
        parts = make_components("Counting-v0", **{name: coefficient * scale})
        info = worker_of(parts, 8).collect(1)
        batch = parts.make_batch(parts.finish_collect(1, info))
        metrics = parts.learner.backend.compute_gradients(batch)
        totals.append(float(metrics["loss"]))
    expected = sign * (factor - 1) * coefficient * float(metrics[term])
    assert totals[1] - totals[0] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("clip_value_coef", [None, 0.1])
@pytest.mark.parametrize("replaces", [False, True])
def test_the_loss_of_values_is_that_of_values_in_their_unit(
    clip_value_coef: float | None, replaces: bool
) -> None:
    """1/2 E[max((V - R)^2, (V_old + clip(V - V_old, -e, e) - R)^2)] of V / 5, V_old / 5, R / 5."""
    learner = plain_learner(clip_value_coef=clip_value_coef, value_coef=0.7, entropy_coef=0.0)
    learner.replaces_policy_loss = replaces
    learner.value_scale = 5.0
    learner.set_coefficients()
    values, old_values, returns = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    zeros = torch.zeros(64)
    batch = {"values": old_values, "returns": returns, "log_probs": zeros, "advantages": zeros}
    distribution = SimpleNamespace(log_prob=lambda actions: zeros, entropy=lambda: zeros)
    learner.forward = lambda minibatch: (distribution, values)  # type: ignore[method-assign]
    loss, _ = learner.objective({**batch, "actions": zeros})
    tables = (table / 5 for table in (values, old_values, returns))
    expected = 0.7 * losses.value_loss(*tables, clip_coef=clip_value_coef)
    torch.testing.assert_close(loss, expected)
