"""Start from another run, freeze parameters, and let the critic learn first."""

import shutil
from typing import Any

import pytest
import torch
from torch import nn

from ppo import Learner, load_policy
from ppo.checkpoint import select
from ppo.errors import CheckpointError, ConfigError
from ppo.extras.fine_tuning import FineTuning
from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import policy_head
from tests.running import assert_same_state, iterate, running, tensors, train
from tests.worlds import Constant, Counting, Numbers

NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}


class Decay(Learner):
    """Moves weights without a gradient, by momentum and weight decay."""

    def make_optimizer(self) -> Any:
        return torch.optim.AdamW([self.parameter], self.learning_rate, weight_decay=0.5)


class Buffered(ActorCritic):
    """Has batch norm, whose buffers change in training mode."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.actor, self.critic = (nn.Sequential(nn.Linear(2, 8), nn.Tanh()) for _ in range(2))
        self.actor.append(nn.BatchNorm1d(8))
        self.critic.append(nn.BatchNorm1d(8)).append(nn.Linear(8, 1))
        self.policy_head = policy_head(8, action_space, config)

    def forward(self, observations: Any) -> tuple[Any, Any]:
        rows = observations.float()
        return self.policy_head(self.actor(rows)), self.critic(rows).squeeze(-1)


def moved(before: dict[str, Any], run: Any) -> set[str]:
    """Return the names of the tensors that are not what they were in a state."""
    was, now = select("model", before), select("model", run.learner.state_dict())
    return {name for name in now if now[name].numpy().tobytes() != was[name].tobytes()}


@pytest.mark.parametrize("is_file", [False, True])
def test_a_run_starts_with_the_weights_and_statistics_of_another(is_file, tmp_path):
    source, file = tmp_path / "a", tmp_path / "policy.safetensors"
    train(Counting, source, 3, **NORMALIZED)
    saved = tensors(source)
    load_policy(source, Counting).save(file)
    given = [FineTuning(init_from=str(file if is_file else source))]
    with running(Counting, tmp_path / "b", given, seed=5, num_envs=2, **NORMALIZED) as run:
        assert not moved(saved, run)
        assert run.normalize.statistics.count == saved["normalize_observation.count"] == 192
        assert run.arrays["shift"].tolist() == saved["normalize_observation.mean"].tolist()
        assert run.arrays["weights"][-1] == saved["model.value_head.bias"][-1] != 0
        assert run.normalize_reward.statistics.count == 0 < saved["normalize_reward.count"]


@pytest.mark.parametrize(
    ("env", "flags", "words"),
    [
        (Counting, {"hidden_size": 16}, r"layers.0.weight \(8, 2\).*\(16, 2\)"),
        (Counting, {"activation": "relu"}, "activation tanh"),
        (Counting, {"model": "lstm"}, "policy_trunk"),
        (Counting, {"normalize_observations": "auto"}, "observations False, this run has True"),
        (Constant, {}, "actions"),
        (Counting, {"init_from": "gone"}, "--init_from=gone"),
        (Counting, {"init_from": None, "freeze": "trunk"}, "--freeze=trunk is not.* value_trunk"),
        (Counting, {"init_from": None, "freeze": "policy,value"}, "nothing to learn"),
        (Counting, {"init_from": None, "freeze": "value", "critic_warmup": 1}, "--critic_warmup"),
    ],
)
def test_what_does_not_fit_is_named_and_no_folder_is_left(env, flags, words, tmp_path):
    train(Counting, tmp_path / "a", 1)
    with pytest.raises((ConfigError, CheckpointError), match=words):
        train(env, tmp_path / "b", 1, **{"init_from": str(tmp_path / "a"), **flags})
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("learner", ["auto", Learner, Decay])
def test_frozen_parameters_stay_to_the_byte(learner, tmp_path):
    given = [FineTuning(freeze=("policy_trunk.layers.1,value", "policy_head.logits.bias"))]
    with running(Counting, tmp_path, given, learner=learner) as run:
        before = run.state
        iterate(run, 2)
        names = ("policy_trunk.layers.0.weight", "policy_trunk.layers.0.bias")
        assert moved(before, run) == {*names, "policy_head.logits.weight"}


def test_a_resumed_run_needs_no_source_and_stays_frozen(tmp_path):
    source, part = tmp_path / "a", tmp_path / "part"
    flags = {"init_from": str(source), "freeze": "value_trunk", "critic_warmup": 3}
    train(Counting, source, 1)
    train(Counting, tmp_path / "whole", 5, **flags, seed=3)
    train(Counting, part, 2, **flags, seed=3)
    shutil.move(source, tmp_path / "moved")
    train(Counting, part, 3, seed=3)
    train(Counting, part, 5, **flags, seed=3)
    assert_same_state(tmp_path / "whole", part)
    with pytest.raises(ConfigError, match="already started"):
        train(Counting, part, 6, init_from=str(tmp_path / "moved"), seed=3)


@pytest.mark.parametrize(
    ("flags", "freeze"),
    [
        ({}, ""),
        ({}, "value_trunk"),
        ({"share_trunk": True}, ""),
        ({"model": "lstm"}, ""),
        ({"learning_rate": "adaptive:1e-3", "target_kl": 0.01}, ""),
        ({"model": Buffered}, ""),
    ],
)
def test_only_the_critic_learns_in_the_warm_up_and_all_after_it(flags, freeze, tmp_path):
    given = [FineTuning(critic_warmup=3, freeze=(freeze,))]
    with running(Counting, tmp_path, given, **NORMALIZED, **flags) as run:
        iterate(run)  # the statistics of observations begin
        before, first = run.state, run.normalize.statistics.count
        iterate(run, 2)
        names = select("model", before)
        may_move = {x for x in names if not freeze or not x.startswith(freeze)}
        critic = {x for x in may_move if x.startswith(("value_", "critic"))}
        assert moved(before, run) == {x for x in critic if "running" not in x and "num_" not in x}
        assert run.metrics["approx_kl"] < 1e-4  # batch norm has statistics of minibatches
        assert run.normalize.statistics.count == first
        iterate(run)
        assert moved(before, run) == may_move
        assert run.metrics["learning_rate"] == before["learning_rate"]
        assert run.normalize.statistics.count == 2 * first


def test_the_first_steps_of_the_policy_are_no_longer_than_the_learning_rate(tmp_path):
    """Adam's first step is about as long as it; moments that were zero in hundreds of steps, and
    are taken for settled, would make it 0.1 / sqrt(0.001 / (1 - 0.999^200)), a third longer."""
    flags = {"num_epochs": 200, "learning_rate": 1e-3}
    with running(Numbers, tmp_path, [FineTuning(critic_warmup=1)], **flags) as run:
        iterate(run)
        run.change(num_epochs=1, target_kl=1e-30)  # one step
        before = run.learner.weights.clone()
        iterate(run)
        steps = (run.learner.weights - before).abs()
        assert float(steps.max()) == pytest.approx(1e-3, rel=0.05)
