"""Runs that begin with the weights of another."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ppo import Config, train
from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import policy_head
from ppo.run.checkpoint import load
from tests.running import CARTPOLE, Call

SMALL = {**CARTPOLE, "total_steps": 512, "eval_episodes": 0, "hidden_size": 8}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on CartPole, whose observations are as long as those of Acrobot are not."""
    folder = tmp_path_factory.mktemp("fine") / "source"
    train(Config(**{**SMALL, "run_dir": str(folder)}))
    return folder


def first_state(folder: Path, **values: Any) -> dict[str, Any]:
    """Start a run; return the state in which it begins."""
    train(Config(**{**SMALL, "num_iterations": 1, "run_dir": str(folder), **values}))
    return load(folder / "checkpoints" / "000000000000.safetensors")


def same(one: dict[str, Any], other: dict[str, Any], prefix: str) -> bool:
    names = [name for name in one if name.startswith(prefix)]
    assert names
    return all(torch.equal(one[name], other[name]) for name in names)


def test_a_new_run_begins_with_the_parts_that_were_asked_for(source: Path, tmp_path: Path) -> None:
    saved = load(source / "checkpoints" / "last.safetensors")
    other = {"seed": 5, "num_envs": 2, "env_kwargs": {"sutton_barto_reward": True}}
    taken = first_state(tmp_path / "all", init_from=str(source), **other)
    for prefix in ("model.", "normalize_observation."):
        assert same(saved, taken, prefix)
    assert taken["iteration"] == 0
    assert taken["normalize_reward.count"] < 1 < saved["normalize_reward.count"]
    file = str(source / "checkpoints" / "last.safetensors")
    taken = first_state(tmp_path / "value", init_from=file, init_parts="value", seed=5)
    assert same(saved, taken, "model.value_")
    assert not same(saved, taken, "model.policy_trunk")
    assert taken["normalize_observation.count"] < 1
    taken = first_state(tmp_path / "rest", init_from=file, init_parts="normalizer,policy", seed=5)
    assert same(saved, taken, "model.policy_")
    assert same(saved, taken, "normalize_observation.")
    assert not same(saved, taken, "model.value_trunk")


def test_what_does_not_fit_is_named_and_left_only_if_asked(
    source: Path, tmp_path: Path, call: Call
) -> None:
    flags = (
        "--env_name=Acrobot-v1",
        "--hidden_size=8",
        "--num_iterations=1",
        "--num_workers=0",
        "--eval_episodes=0",
        "--report=False",
        "--preset=none",
        f"--init_from={source}",
        f"--run_dir={tmp_path}/run",
    )
    code, output, error = call(*flags)
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert error.startswith(f"error: --init_from={source} does not fit (model.policy_head.logits.b")
    assert "here torch.float32 (3,)" in error
    assert error.endswith("give --init_partial to take what does\n")
    code, output, error = call(*flags, "--init_partial")
    assert code == 0
    name = "model.policy_trunk.layers.0.weight, "
    assert f"begins with policy,value,normalizer of {source}, without model.policy_head" in output
    assert name in output
    state = load(tmp_path / "run" / "checkpoints" / "000000000000.safetensors")
    saved = load(source / "checkpoints" / "last.safetensors")
    assert same(saved, {**state}, "model.policy_trunk.layers.1")
    assert not state["model.policy_trunk.layers.0.bias"].any()  # whose weight does not fit
    assert state["normalize_observation.count"] < 1  # whose mean does not fit


def test_a_resumed_run_does_not_look_for_what_it_began_with(
    source: Path, tmp_path: Path, call: Call
) -> None:
    gone = tmp_path / "gone"
    shutil.copytree(source, gone, symlinks=True)
    run = tmp_path / "run"
    first_state(run, init_from=str(gone), freeze="policy")
    shutil.rmtree(gone)
    code, output, _ = call(f"--resume={run}", "--num_iterations=2", "--verbose=1")
    assert code == 0
    assert "not exact: num_iterations=2 instead of 1\n" in output
    assert "begins with" not in output
    saved = load(source / "checkpoints" / "last.safetensors")
    state = load(run / "checkpoints" / "last.safetensors")
    assert (state["iteration"], state["config"]["freeze"]) == (2, "policy")
    assert same(saved, state, "model.policy_")
    assert not same(saved, state, "model.value_trunk")


def test_wrong_sources_are_refused_with_one_sentence(
    source: Path, tmp_path: Path, call: Call
) -> None:
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(b"nothing")
    for wrong, code, message in (
        ([f"--init_from={tmp_path}/nowhere"], 2, "there is no such run or checkpoint"),
        ([f"--init_from={damaged}"], 3, f"cannot read checkpoint {damaged}"),
        (["--init_parts=polic"], 2, "--init_parts=polic: expected some of policy,value,normalizer"),
        (
            ["--freeze=policy,trunk"],
            2,
            "--freeze: unknown parameter trunk; give some of policy_trunk.",
        ),
    ):
        found, output, error = call("--env_name=CartPole-v1", *wrong, f"--run_dir={tmp_path}/run")
        assert (found, output, error.count("\n")) == (code, "", 1), error
        assert message in error


class Merged(ActorCritic):
    """Has a body that is of the policy and of the value."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.body = nn.Linear(4, 5)
        self.policy_head = policy_head(4, action_space, config)

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        features = self.body(observations)
        return self.policy_head(features[:, :4]), features[:, 4]


def test_policy_and_value_together_are_the_whole_of_a_model_of_your_own(tmp_path: Path) -> None:
    own = {"model": "tests.extras.transfer.test_fine_tune:Merged"}
    saved = load(Path(train(Config(**{**SMALL, **own, "run_dir": str(tmp_path / "a")})).checkpoint))
    taken = first_state(tmp_path / "b", init_from=str(tmp_path / "a"), seed=3, **own)
    assert same(saved, taken, "model.body")


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [("mlp", "Adam"), ("tests.extras.transfer.test_fine_tune:Merged", "AdamW")],
)
def test_frozen_parameters_stay_as_they_are(optimizer: str, model: str, tmp_path: Path) -> None:
    frozen, learned = ("value_", "policy_") if model == "mlp" else ("policy_head.log", "body")
    values = {"optimizer": f"torch.optim:{optimizer}", "model": model, "freeze": frozen}
    summary = train(Config(**{**SMALL, **values, "run_dir": str(tmp_path)}))
    begun = load(tmp_path / "checkpoints" / "000000000000.safetensors")
    end = load(Path(summary.checkpoint))
    assert same(begun, end, f"model.{frozen}")
    assert not same(begun, end, f"model.{learned}")
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    assert len(rows) == 3
