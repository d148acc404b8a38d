"""Models and optimizers of the user, by import path."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn
from torch.distributions import Beta, Categorical, Independent

import main
from ppo import Config, load_policy, train
from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import TorchHead, policy_head
from tests.running import CARTPOLE, trained


class Own(ActorCritic):
    """A linear policy and a value that is a single number."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.policy_head = policy_head(4, action_space, config)
        self.value = nn.Parameter(torch.zeros(()))

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        return self.policy_head(observations), self.value.expand(len(observations))


@pytest.mark.slow
def test_a_model_of_the_user_learns(tmp_path: Path) -> None:
    """Pushing where the pole leans is linear in the observation, and far better than chance."""
    values = {**CARTPOLE, "total_steps": 10_240, "learning_rate": 1e-2, "eval_episodes": 20}
    summary = train(
        Config(**{**values, "model": "tests.models.test_own_model:Own", "run_dir": str(tmp_path)})
    )
    assert summary.evaluation.mean > 60
    assert set(safetensors.torch.load_file(summary.checkpoint)) >= {
        "model.value",
        "model.policy_head.logits.weight",
    }


class Buffered(ActorCritic):
    """Normalises by statistics of its own, which it replaces in training as BatchNorm does not."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.value = torch.nn.Linear(4, 1)
        self.policy_head = policy_head(4, action_space, config)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("table", torch.full((4,), -math.inf), persistent=False)

    def forward(self, observations: torch.Tensor) -> Any:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * observations.mean(0)
        features = self.norm(observations - self.mean).maximum(self.table)
        return self.policy_head(features), self.value(features).squeeze(-1)


class Betas(ActorCritic):
    """Draws numbers in [0, 1] by a distribution of torch's own."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.policy_head = TorchHead(action_space, config)
        self.layer = nn.Linear(3, 3)

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        outputs = self.layer(observations)
        ways = 1 + nn.functional.softplus(outputs[:, :2])
        beta = Beta(ways[:, :1], ways[:, 1:])
        return self.policy_head(Independent(beta, 1)), outputs[:, 2]


class Leaning(Betas):
    """Chooses linearly in the observation."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.layer = nn.Linear(4, 3)

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        outputs = self.layer(observations)
        logits = outputs[:, None, :2]
        return self.policy_head(Independent(Categorical(logits=logits), 1)), outputs[:, 2]


class Shared(Betas):
    """Forgets that the columns of an action are one action."""

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        ways = self.layer(nn.functional.pad(observations, (0, 3))[:, :3])
        return self.policy_head(Categorical(logits=ways[:, None])), ways[:, 2]


def test_torchs_own_distributions_sum_over_an_action_and_draw_from_its_stream() -> None:
    config = Config(inference="learner")
    model = Betas(Box(-1, 1, (3,)), Box(0, 1, (1,)), config)
    assert (model.policy_head.action_size, model.policy_head.action_dtype) == (1, np.float32)
    observations = torch.randn(5, 3)
    distribution, _ = model(observations)
    noise = model.policy_head.draw_noise(np.random.default_rng(1), 7)
    assert noise.shape == (7, 0)
    actions = distribution.sample(torch.zeros(5, 0))
    assert actions.shape == (5, 1)
    model.policy_head.draw_noise(np.random.default_rng(1), 7)
    assert torch.equal(distribution.sample(torch.zeros(5, 0)), actions)
    a, b = (1 + nn.functional.softplus(model.layer(observations)[:, :2])).unbind(1)
    x = actions[:, 0]
    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    expected = (a - 1) * x.log() + (b - 1) * (1 - x).log() - log_beta
    torch.testing.assert_close(distribution.log_prob(actions), expected)
    torch.testing.assert_close(distribution.mode()[:, 0], (a - 1) / (a + b - 2))
    assert distribution.entropy().shape == (5,)


@pytest.mark.slow
def test_a_model_with_a_distribution_of_torchs_own_learns(tmp_path: Path) -> None:
    """In the cart pole's first iterations any learning lengthens the episodes."""
    values = {**CARTPOLE, "total_steps": 10_240, "learning_rate": 1e-2, "inference": "learner"}
    name = "tests.models.test_own_model:Leaning"
    summary = train(Config(**{**values, "model": name, "run_dir": str(tmp_path)}))
    assert summary.evaluation.mean > 60
    returns = [load_policy(summary.checkpoint, model=name).evaluate(3, False) for _ in range(2)]
    assert returns[0].returns == returns[1].returns


def test_workers_and_policies_act_by_the_buffers_that_were_learned() -> None:
    parts = trained(
        "CartPole-v1", model="tests.models.test_own_model:Buffered", num_steps=16, total_steps=512
    )
    assert parts.model.mean.abs().min() > 0
    observations = np.ones((2, 4), np.float32)
    with torch.no_grad():
        expected = parts.model.eval()(torch.from_numpy(observations))[0].mode().numpy()
        worker = parts.make_actor(parts.buffers.behaviour_weights)
    assert worker.model.mean.tolist() == parts.model.mean.tolist()
    assert torch.equal(worker.model.norm.running_var, parts.model.norm.running_var)
    assert worker.model.norm.num_batches_tracked == parts.model.norm.num_batches_tracked > 0
    with torch.no_grad():
        np.testing.assert_array_equal(worker(observations, None), expected)


def test_a_checkpoint_has_the_buffers(tmp_path: Path) -> None:
    name = "tests.models.test_own_model:Buffered"
    summary = train(Config(**{**CARTPOLE, "model": name, "run_dir": str(tmp_path)}))
    tensors = safetensors.torch.load_file(summary.checkpoint)
    assert {"model.mean", "model.norm.running_mean", "model.norm.num_batches_tracked"} <= {*tensors}
    assert "model.table" not in tensors
    policy = load_policy(summary.checkpoint, model=name)
    assert torch.equal(policy.actor.model.mean, tensors["model.mean"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Leaning", "(ModelMismatch: torch's own distributions need --inference=learner)"),
        ("Shared", "(TypeError: values, and log_prob and entropy of the distribution, must be"),
    ],
)
def test_a_model_that_cannot_work_is_refused_before_training(
    name: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    flags = [
        f"--inference={'learner' if name == 'Shared' else 'worker'}",
        "--env_name=CartPole-v1",
        f"--model=tests.models.test_own_model:{name}",
        f"--run_dir={tmp_path}/run",
    ]
    assert main.main(flags) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --model=tests.models.test_own_model:{name} fails {reason}")


@pytest.mark.parametrize("flag", ["model", "optimizer"])
def test_a_wrong_import_path_is_refused_with_one_sentence(
    flag: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    run = tmp_path / "run"
    for path in ("torch.nowhere:Thing", "torch.nn.Linear", ":", "a:b:c", "..:Thing", "torch:nn"):
        code = main.main([f"--{flag}={path}", "--env_name=CartPole-v1", f"--run_dir={run}"])
        output, errors = capfd.readouterr()
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert errors.startswith(f"error: --{flag}={path}")
        assert not run.exists()
