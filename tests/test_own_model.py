"""Models and optimizers of the user, by import path."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import main
from ppo import Config, train
from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import policy_head
from tests.running import CARTPOLE


class Own(ActorCritic):
    """A linear policy and a value that is a single number."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.policy_head = policy_head(4, action_space, config)
        self.value = nn.Parameter(torch.zeros(()))

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        return self.policy_head(observations), self.value.expand(len(observations))


def test_a_model_of_the_user_learns(tmp_path: Path) -> None:
    """Pushing where the pole leans is linear in the observation, and far better than chance."""
    values = {**CARTPOLE, "total_steps": 10_240, "learning_rate": 1e-2, "eval_episodes": 20}
    summary = train(
        Config(**{**values, "model": "tests.test_own_model:Own", "run_dir": str(tmp_path)})
    )
    assert summary["evaluation"]["mean"] > 60
    assert set(safetensors.torch.load_file(summary["checkpoint"])) >= {
        "model.value",
        "model.policy_head.logits.weight",
    }


class Shapeless(ActorCritic):
    """Forgets that values are (B,)."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.value = torch.nn.Linear(4, 1)
        self.policy_head = policy_head(4, action_space, config)

    def forward(self, observations: torch.Tensor) -> Any:
        return self.policy_head(observations), self.value(observations)


class Buffered(Shapeless):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, observations: torch.Tensor) -> Any:
        return self.policy_head(observations), self.value(observations).squeeze(-1)


@pytest.mark.parametrize(
    ("name", "reason"), [("Shapeless", "values (B,)"), ("Buffered", "buffers")]
)
def test_a_model_that_cannot_work_is_refused_before_training(
    name: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    flags = [
        "--env_name=CartPole-v1",
        f"--model=tests.test_own_model:{name}",
        f"--run_dir={tmp_path}/run",
    ]
    assert main.main(flags) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --model=tests.test_own_model:{name} fails (TypeError")
    assert reason in error


@pytest.mark.parametrize("flag", ["model", "optimizer"])
@pytest.mark.parametrize(
    "path",
    [
        "nowhere:Thing",
        "torch.nowhere:Thing",
        "torch.nn:Nowhere",
        "torch.nn.Linear",
        "nonsense",
        ":",
        "a:b:c",
        "..:Thing",
        "math:pi",
        "torch:nn",
        "torch.nn:Linear",
    ],
)
def test_a_wrong_import_path_is_refused_with_one_sentence(
    flag: str, path: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    run = tmp_path / "run"
    code = main.main(
        [f"--{flag}={path}", "--env_name=CartPole-v1", "--num_workers=0", f"--run_dir={run}"]
    )
    output, errors = capfd.readouterr()
    assert code == 2
    assert output == ""
    assert errors.startswith(f"error: --{flag}={path}")
    assert errors.count("\n") == 1
    assert not run.exists()
