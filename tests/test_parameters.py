"""A model's parameters as one vector."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ppo.algorithm.adam import Adam
from ppo.algorithm.parameters import flatten_parameters, make_optimizer, replaced_weights
from ppo.config.config import Config
from ppo.errors import ConfigError
from tests.running import run_main


def test_a_models_parameters_and_gradients_are_views_of_two_vectors() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    weights, gradients = flatten_parameters(model)
    assert weights.shape == gradients.shape == (13,)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, old)
    model(torch.ones(4, 2)).sum().backward()
    assert gradients[-1] == 4  # of the last bias
    weights.zero_()
    assert all((parameter == 0).all() for parameter in model.parameters())


def test_other_weights_are_used_until_the_context_is_left_even_by_an_error() -> None:
    model = nn.BatchNorm1d(1)  # with weight, bias, mean, variance and a count of batches
    own = [1, 0, 0, 1, 0]

    def numbers() -> list[float]:
        return [x.item() for x in model.state_dict().values()]

    with replaced_weights(model, None):
        assert numbers() == own
    others = np.array([2, 3, 4, 5, 6], np.float32)
    with pytest.raises(ZeroDivisionError), replaced_weights(model, others):  # noqa: PT012
        assert numbers() == [2, 3, 4, 5, 6]
        raise ZeroDivisionError
    assert numbers() == own


def test_the_optimizer_is_the_flags_and_steps_the_vector() -> None:
    weights, gradients = torch.ones(3), torch.full((3,), 2.0)
    assert isinstance(make_optimizer(Config(), weights, gradients, 0.1), Adam)
    sgd = make_optimizer(Config(optimizer="torch.optim:SGD"), weights, gradients, 0.1)
    sgd.step()
    assert weights.tolist() == pytest.approx([0.8] * 3)


@pytest.mark.parametrize("name", ["torch.optim:Nothing", "nowhere:Adam", "math:sqrt"])
def test_an_optimizer_that_cannot_be_made_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--optimizer={name} cannot be "):
        make_optimizer(Config(optimizer=name), torch.ones(3), torch.ones(3), 0.1)


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam"])
def test_an_optimizer_that_steps_in_another_way_is_refused_at_the_start(
    name: str, tmp_path: Path
) -> None:
    flag = f"--optimizer=torch.optim:{name}"
    done = run_main("--env_name=CartPole-v1", flag, f"--run_dir={tmp_path / 'run'}")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(f"error: {flag} cannot be used .*: give a class .*\n", done.stderr)
    assert not (tmp_path / "run").exists()
