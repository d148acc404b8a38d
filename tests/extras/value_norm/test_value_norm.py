"""Value normalisation: its mathematics, and what runs make of it."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from benchmarks.parts.fault_files import filled, reseal
from ppo import Config, load_policy, train
from ppo.algorithm import losses
from ppo.algorithm.backend import TorchBackend
from ppo.algorithm.learner import Learner
from ppo.extras.value_norm.head import MIN_STD, NormalizedHead
from ppo.extras.value_norm.statistics import ValueNorm
from ppo.models.actor_critic import ActorCritic, value_head
from ppo.models.distributions import policy_head
from ppo.run.checkpoint import load
from tests.running import CARTPOLE, Call, make_components, make_network, metrics

HERE = "tests.extras.value_norm.test_value_norm"
SMALL = {**CARTPOLE, "total_steps": 1024, "eval_episodes": 0, "checkpoint_every": 1}
TINY = ["CartPole-v1", "--preset=none", "--num_envs=2", "--num_steps=8", "--num_minibatches=1"]
TINY += ["--total_steps=32", "--num_workers=0", "--eval_episodes=0", "--report=False"]
EACH_KIND = pytest.mark.parametrize("kind", ["popart", "running"])


class Times64(gymnasium.RewardWrapper):
    """Rewards in another unit, by a power of two, which changes no bit of a number's fraction."""

    def reward(self, reward: Any) -> float:
        return 64 * float(reward)


class Own(ActorCritic):
    """A network of the user's own, whose values are from a head that extensions may make."""

    def __init__(self, observation_space: Any, action_space: Any, config: Config) -> None:
        super().__init__()
        self.trunk = nn.Linear(4, 8)
        self.policy_head = policy_head(8, action_space, config)
        self.values = self.make_values(config)

    def make_values(self, config: Config) -> nn.Linear:
        return value_head(8, config)

    def forward(self, observations: Tensor) -> Any:
        features = self.trunk(observations.float()).tanh()
        return self.policy_head(features), self.values(features)[:, 0]


class Unscaled(Own):
    def make_values(self, config: Config) -> nn.Linear:
        return nn.Linear(8, 1)


def random_head(num_features: int = 5) -> NormalizedHead:
    """A head that has learned something, in another unit than 1."""
    head = NormalizedHead(num_features)
    with torch.no_grad():
        for tensor, value in zip(head.parameters(), (0.7, -0.3), strict=True):
            tensor.normal_(value, generator=torch.Generator().manual_seed(0))
        head.mean.fill_(-3.0)
        head.std.fill_(7.0)
    return head


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_statistics_are_exponential_averages_of_moments_without_bias() -> None:
    """E[x] and E[x^2] with weights rate (1 - rate)^(t - i), divided by their sum."""
    head = NormalizedHead(1)
    batches = [100 + (i + 1) * draws(50, seed=i).double().numpy() * 5 + i for i in range(6)]
    for t, batch in enumerate(batches, 1):
        head.update(batch.mean(), batch.var(), rate=0.3)
        weights = 0.3 * 0.7 ** (t - np.arange(1, t + 1))
        weights /= weights.sum()
        first = sum(w * x.mean() for w, x in zip(weights, batches, strict=False))
        second = sum(w * (x**2).mean() for w, x in zip(weights, batches, strict=False))
        assert head.mean.item() == pytest.approx(first, rel=1e-5)
        assert head.std.item() == pytest.approx((second - first**2) ** 0.5, rel=1e-5)


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_returns_that_are_all_the_same_have_the_smallest_deviation(rate: float) -> None:
    head = NormalizedHead(1)
    for _ in range(3):
        head.update(5.0, 0.0, rate)
        assert (head.mean.item(), head.std.item()) == (5.0, pytest.approx(MIN_STD))


@pytest.mark.parametrize(("mean", "std"), [(100.0, 0.01), (-3.0, 7.0), (0.0, 1000.0)])
def test_outputs_are_preserved_by_other_statistics(mean: float, std: float) -> None:
    head = random_head()
    features = draws(20, 5)
    before = head(features)
    old = head.mean.clone(), head.std.clone()
    head.mean.fill_(mean)
    head.std.fill_(std)
    assert (mean, std) == (-3, 7) or (head(features) - before).abs().min() > 1
    head.preserve_outputs(*old)
    torch.testing.assert_close(head(features), before, rtol=1e-5, atol=1e-4)


def part_of(kind: str, head: NormalizedHead, *others: Any, rate: float = 0.5) -> ValueNorm:
    """Make the part of a head, of a learner with peers that tell other moments."""
    peers = SimpleNamespace(gather=lambda moments: [moments, *others])
    config = SimpleNamespace(value_norm=kind, value_norm_rate=rate)
    learner = SimpleNamespace(config=config, peers=peers, held=None)
    parts: Any = SimpleNamespace(learner=learner, model=nn.Sequential(head))
    return ValueNorm(parts, head)


@EACH_KIND
def test_statistics_are_of_returns_of_all_processes_where_an_agent_was_present(kind: str) -> None:
    head = random_head()
    returns = draws(40) * 3 + 1
    present = draws(40, seed=1) > 0
    part = part_of(kind, head, (10, 6.0, 4.0), rate=1.0)
    values = draws(40)
    with part.on_update({"returns": returns, "values": values, "present": present}, 1):
        assert part.learner.value_scale == head.std.item()
    here = returns[present].double()
    pooled = np.concatenate([here.numpy(), 6 + 2 * np.array([-1, 1] * 5)])
    assert head.mean.item() == pytest.approx(pooled.mean(), rel=1e-5)
    assert head.std.item() == pytest.approx(pooled.std(), rel=1e-5)


@pytest.mark.parametrize("form", [torch.Tensor, np.asarray], ids=["torch", "numpy"])
def test_popart_keeps_values_and_running_moves_old_and_new_ones_alike(form: Any) -> None:
    features = draws(30, 5)
    returns = form((draws(30, seed=1) * 50 + 20).numpy())
    for kind in ("popart", "running"):
        head = random_head()
        before = head(features)[:, 0].detach()
        batch = {"returns": returns, "values": form(before.numpy())}
        with part_of(kind, head).on_update(batch, 1):
            after = head(features)[:, 0].detach()
        is_kept = torch.allclose(after, before, rtol=1e-4, atol=1e-4)
        assert is_kept == (kind == "popart")
        torch.testing.assert_close(torch.as_tensor(batch["values"]), after, rtol=1e-4, atol=1e-3)


@EACH_KIND
def test_values_begin_at_zero_and_then_at_the_mean_of_returns(kind: str) -> None:
    head = NormalizedHead(5)
    features = draws(30, 5)
    assert not head(features).any()
    batch = {"returns": draws(30) + 9, "values": torch.zeros(30)}
    with part_of(kind, head).on_update(batch, 1):
        assert head(features)[:, 0].tolist() == batch["values"].tolist() == [head.mean.item()] * 30
    assert head.mean.item() == pytest.approx(batch["returns"].mean().item())


@pytest.mark.parametrize("clip_value_coef", [None, 0.2])
def test_the_gradient_is_that_of_normalised_values_and_targets(
    clip_value_coef: float | None,
) -> None:
    """Of 1/2 (n - (R - mean) / std)^2, whose values n are those of the linear layer."""
    model = make_network(spaces.Box(-1, 1, (5,)), spaces.Discrete(3), value_norm="popart")
    head = random_head(64)
    model.value_head.load_state_dict(head.state_dict())
    learner = Learner(model, Config(value_coef=0.7, clip_value_coef=clip_value_coef))
    learner.replaces_policy_loss = True
    learner.value_scale = head.std.item()
    learner.set_coefficients()
    zeros = torch.zeros(40)
    batch = {"actions": zeros[:, None].long(), "log_probs": zeros, "advantages": zeros}
    batch["values"], batch["returns"] = draws(2, 40) * 7 - 3
    batch["observations"] = draws(40, 5)
    TorchBackend(learner).compute_gradients(batch)
    found = [x.grad.clone() for x in learner.model.value_head.parameters()]
    features = learner.model.value_trunk(batch["observations"]).detach()
    outputs = nn.functional.linear(features, *head.parameters())[:, 0]
    old, targets = ((batch[name] - head.mean) / head.std for name in ("values", "returns"))
    loss = 0.7 * losses.value_loss(outputs, old, targets, clip_coef=clip_value_coef)
    expected = torch.autograd.grad(loss, [*head.parameters()])
    torch.testing.assert_close(found, [*expected], rtol=1e-4, atol=1e-6)


@EACH_KIND
@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_what_is_learned_does_not_depend_on_the_unit_of_rewards(
    kind: str, network: str, tmp_path: Path
) -> None:
    """Bit for bit, for a power of two: in numpy, and for a network with a memory in torch."""
    found = []
    for name, wrappers in (("one", []), ("other", [f"{HERE}:Times64"])):
        values = {"model": network, "value_norm": kind, "wrapper": wrappers, "entropy_coef": 0.0}
        sizes = {**SMALL, "hidden_size": 16, "num_minibatches": 2, "normalize_rewards": False}
        train(Config(**{**sizes, **values, "run_dir": str(tmp_path / name)}))
        found.append(load(tmp_path / name / "checkpoints" / "last.safetensors"))
    one, other = found
    head = "model.value_head."
    assert one[f"{head}mean"] > 1
    assert one[f"{head}weight"].abs().max() > 1e-3
    units = {f"{head}mean": 64, f"{head}std": 64}
    for name in one:
        if name.startswith(("model.", "optimizer.")):
            assert torch.equal(one[name] * units.get(name, 1), other[name]), name


@EACH_KIND
@pytest.mark.parametrize("normalize_rewards", [False, True])
def test_a_run_stopped_and_resumed_comes_to_the_same_bits(
    kind: str, normalize_rewards: bool, tmp_path: Path
) -> None:
    values = {**SMALL, "value_norm": kind, "normalize_rewards": normalize_rewards}
    train(Config(**values, run_dir=str(tmp_path / "whole")))
    train(Config(**values, run_dir=str(tmp_path / "part"), num_iterations=2))
    train("CartPole-v1", resume=str(tmp_path / "part"), num_iterations=4, verbose=0, report=False)
    whole, part = (
        load(tmp_path / name / "checkpoints" / "last.safetensors") for name in ("whole", "part")
    )
    assert part["model.value_head.count"] == part["iteration"] == 4
    tensors = {name: x for name, x in whole.items() if isinstance(x, Tensor)}
    assert not [name for name, x in tensors.items() if not x.equal(part[name])]
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "part")


def test_values_of_a_policy_are_in_units_of_rewards(tmp_path: Path) -> None:
    """Within what rounding to float32 changes: those that the learner has."""
    values = {**SMALL, "total_steps": 8192, "normalize_rewards": False, "gamma": 0.9}
    train(Config(**values, value_norm="popart", run_dir=str(tmp_path / "run")))
    rows = metrics(tmp_path / "run")
    assert all(float(row["value_norm/std"]) > 0.5 for row in rows)
    policy = load_policy(tmp_path / "run")
    found = policy.values(np.zeros((3, 4), np.float32))
    assert 6 < found[0] < 12  # an upright pole: 1 / (1 - gamma)
    policy.save(tmp_path / "policy.safetensors")
    assert (load_policy(tmp_path / "policy.safetensors").values(np.zeros(4)) == found[0]).all()


def test_a_run_without_the_flag_has_no_statistics() -> None:
    plain = make_components("CartPole-v1")
    assert type(plain.model.value_head) is nn.Linear
    assert not plain.model.buffer_names
    assert "value_norm" not in plain.extension_parts


def test_a_network_of_ones_own_makes_its_values_by_a_head_that_is_scaled(tmp_path: Path) -> None:
    train(
        Config(**{**SMALL, "model": f"{HERE}:Own", "value_norm": "popart"}, run_dir=str(tmp_path))
    )
    state = load(tmp_path / "checkpoints" / "last.safetensors")
    assert state["model.values.count"] == 4


def test_a_network_without_such_a_head_is_refused(call: Call) -> None:
    code, _, errors = call(*TINY, f"--model={HERE}:Unscaled", "--value_norm=popart")
    assert (code, errors) == (
        2,
        f"error: --value_norm=popart scales one layer of values, --model={HERE}:Unscaled has 0: "
        "make it by ppo.models.actor_critic.value_head(F, config), or leave the flag out\n",
    )


@pytest.mark.parametrize("wrong", ["value_norm=art", "value_norm_rate=0", "value_norm_rate=2"])
def test_wrong_values_are_refused(wrong: str, call: Call) -> None:
    code, _, errors = call(*TINY, f"--{wrong}")
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith(f"error: --{wrong}: expected ")


def test_a_run_goes_on_as_it_began_and_any_number_in_its_file_raises_nothing(
    tmp_path: Path, call: Call
) -> None:
    run = tmp_path / "run"
    code, _, errors = call(*TINY, "--value_norm=running", f"--run_dir={run}")
    assert (code, errors) == (0, "")
    code, _, errors = call(f"--resume={run}", "--value_norm=none", "--num_iterations=3")
    assert (code, errors.count("\n")) == (3, 1)
    assert "begun with value_norm=running" in errors
    for name, number in (("std", 0.0), ("std", -1.0), ("std", 3e38), ("count", -1.0)):
        copy = shutil.copytree(run, tmp_path / f"{name} {number}", symlinks=True)
        name = f"model.value_head.{name}"
        reseal(copy, lambda state, name=name, number=number: filled(state, name, number))
        code, _, errors = call(f"--resume={copy}", "--num_iterations=3", "--report=False")
        assert (code, errors) == (0, "")


@EACH_KIND
def test_statistics_of_a_frozen_head_stand_still(kind: str, tmp_path: Path) -> None:
    values = {**SMALL, "total_steps": 512, "value_norm": kind}
    train(Config(**values, run_dir=str(tmp_path / "first")))
    first = load(tmp_path / "first" / "checkpoints" / "last.safetensors")
    values |= {"init_from": str(tmp_path / "first"), "freeze": "value_"}
    train(Config(**values, seed=3, run_dir=str(tmp_path / "second")))
    second = load(tmp_path / "second" / "checkpoints" / "last.safetensors")
    names = [name for name in first if name.startswith("model.value_head.")]
    assert len(names) == 5
    assert all(torch.equal(first[name], second[name]) for name in names)
    assert not torch.equal(
        first["model.policy_head.logits.weight"], second["model.policy_head.logits.weight"]
    )
