"""Critic warm-up: the policy stands still, exactly, while the critic learns."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ppo import Config, train
from ppo.components import Components
from ppo.config.settings import settings_of
from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import policy_head
from ppo.run.checkpoint import load
from tests.running import CARTPOLE, Call, learn, make_components, metrics

SMALL = {**CARTPOLE, "total_steps": 1024, "eval_episodes": 0, "checkpoint_every": 1}
FORMS: list[dict[str, Any]] = [
    {},
    {"share_trunk": True},
    {"model": "lstm", "hidden_size": 8},
    {"learning_rate": "adaptive:1e-3", "target_kl": 0.01},
    {"freeze": "value_trunk"},
    {"model": "examples.own_model:NormalizedActorCritic", "hidden_size": 8},
]


def train_small(folder: Path, **values: Any) -> list[dict[str, Any]]:
    """Train four iterations; return the states after the second, the third and the last."""
    train(Config(**{**SMALL, "critic_warmup": 2, "run_dir": str(folder), **values}))
    return [load(path) for path in sorted((folder / "checkpoints").glob("0*"))]


def components(**values: Any) -> Components:
    """Make the parts of a run as train does."""
    return Components(settings_of(Config(**{**SMALL, "critic_warmup": 2, **values})))


def moved(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Return the names of the weights that differ."""
    names = [name for name in before if name.startswith("model.")]
    return {name for name in names if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("values", FORMS, ids=lambda values: ",".join(values) or "plain")
def test_only_the_critic_learns_in_the_warm_up_and_everything_after_it(
    values: dict[str, Any], tmp_path: Path
) -> None:
    start = components(**values).state_dict()
    warm, _, end = train_small(tmp_path, **values)
    critic = {name for name in start if name.startswith(("model.value_", "model.critic"))}
    if "freeze" in values:
        critic = {name for name in critic if "trunk" not in name}
    assert moved(start, warm) == critic != set()
    policy = {name for name in start if name.startswith(("model.policy_", "model.actor"))}
    assert policy <= moved(warm, end)
    rows = metrics(tmp_path)
    assert [float(row["approx_kl"]) < 1e-6 for row in rows] == [True, True, False, False]
    assert all(float(row["entropy"]) > 0.5 for row in rows)
    assert len({row["learning_rate"] for row in rows[:3]}) == 1


def test_on_a_shared_trunk_of_images_only_the_values_head_learns() -> None:
    sizes = {"num_envs": 2, "num_steps": 8, "total_steps": 32, "screen_size": 40}
    parts = make_components("Picture", critic_warmup=1, model="cnn_small", **sizes)
    start = {name: x.detach().clone() for name, x in parts.model.named_parameters()}
    with parts.make_pool() as workers:
        learn(parts, workers.collect(1))
        learned = [name for name, x in parts.model.named_parameters() if not x.equal(start[name])]
        assert learned == ["value_head.weight", "value_head.bias"]
        learn(parts, workers.collect(2))
    assert not any(x.equal(start[name]) for name, x in parts.model.named_parameters())


def test_the_first_steps_of_the_policy_are_no_longer_than_the_learning_rate() -> None:
    """Adam's first step is about as long as it; moments that were zero in hundreds of steps, and
    are taken for settled, would make it 0.1 / sqrt(0.001 / (1 - 0.999^200)), a third longer."""
    parts = components(num_epochs=200, num_minibatches=1, critic_warmup=1)
    with parts.make_pool() as workers:
        learn(parts, workers.collect(1))
        parts.change_settings({"num_epochs": 1})
        before = parts.learner.weights.clone()
        learn(parts, workers.collect(2))
    step = float((parts.learner.weights - before).abs().max())
    assert step == pytest.approx(1e-3, rel=0.05)


class Buffered(ActorCritic):
    """Has batch norm, whose buffers change in training mode, in the policy and in the value."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.judge = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
        self.policy_head = policy_head(8, action_space, config)

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        return self.policy_head(self.actor(observations)), self.judge(observations).squeeze(-1)


def test_buffers_stand_still_too() -> None:
    parts = components(model="tests.extras.transfer.test_critic_warmup:Buffered", critic_warmup=1)
    start = {name: x.clone() for name, x in parts.model.state_dict().items()}
    with parts.make_pool() as workers:
        learn(parts, workers.collect(1))
        now = parts.model.state_dict()
        assert {x for x in start if not start[x].equal(now[x])} == {
            f"judge.{layer}.{kind}" for layer in (0, 1, 3) for kind in ("weight", "bias")
        }
        learn(parts, workers.collect(2))
    assert not start["actor.1.running_mean"].equal(parts.model.state_dict()["actor.1.running_mean"])


def test_a_run_killed_in_its_warm_up_and_resumed_comes_to_the_same(tmp_path: Path) -> None:
    """By train in this process: from each of the checkpoints that a kill may leave."""
    whole, *_, end = train_small(tmp_path / "whole", critic_warmup=3)
    assert whole["iteration"] == 2
    for iterations in (1, 3):
        folder = tmp_path / f"part-{iterations}"
        train_small(folder, critic_warmup=3, num_iterations=iterations)
        train("CartPole-v1", resume=str(folder), num_iterations=4, verbose=0, report=False)
        resumed = load(folder / "checkpoints" / "last.safetensors")
        assert resumed["iteration"] == 4
        tensors = {name: x for name, x in end.items() if isinstance(x, Tensor)}
        assert not [name for name, x in tensors.items() if not x.equal(resumed[name])]


def test_a_critic_without_weights_of_its_own_is_refused(tmp_path: Path, call: Call) -> None:
    flags = ["--num_envs=2", "--num_steps=8", "--num_minibatches=1", "--total_steps=32"]
    code, _, error = call(
        "--env_name=CartPole-v1",
        *flags,
        "--num_workers=0",
        "--preset=none",
        "--model=tests.extras.transfer.test_fine_tune:Merged",
        "--critic_warmup=1",
        f"--run_dir={tmp_path}/run",
    )
    assert (code, error.count("\n")) == (2, 1), error
    assert error.startswith("error: --critic_warmup: all weights that may change are also the poli")
