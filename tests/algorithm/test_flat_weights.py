"""A model's parameters as one vector."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from ppo.algorithm.adam import Adam
from ppo.algorithm.flat_weights import (
    flatten_parameters,
    make_optimizer,
    mask_of,
)
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


def test_arguments_of_the_optimizer_are_those_of_torchs() -> None:
    """Against torch's own steps; Adam keeps the epsilon that it has without arguments."""
    for text, options in {
        "AdamW(weight_decay=0.5, betas=(0.5, 0.9))": {"weight_decay": 0.5, "betas": (0.5, 0.9)},
        "SGD(momentum=0.9, nesterov=True)": {"momentum": 0.9, "nesterov": True},
        "Adam(weight_decay=0.5)": {"weight_decay": 0.5, "eps": 1e-5},
        "Adam(eps=0.1)": {"eps": 0.1},
    }.items():
        weights, gradients = torch.ones(3), torch.tensor([1.0, -2.0, 3e-6])
        ours = make_optimizer(Config(optimizer=f"torch.optim:{text}"), weights, gradients, 0.1)
        other = nn.Parameter(torch.ones(3))
        other.grad = gradients.clone()
        theirs = getattr(torch.optim, text.partition("(")[0])([other], lr=0.1, **options)
        for _ in range(3):
            ours.step()
            theirs.step()
        assert torch.equal(weights, other.data), text
    for text in ("Adam()", "Adam(eps=1e-5)"):
        config = Config(optimizer=f"torch.optim:{text}")
        assert isinstance(make_optimizer(config, weights, gradients, 0.1), Adam)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "weigth_decay=1",
            "got an unexpected keyword argument 'weigth_decay'; it takes betas, eps",
        ),
        ("lr=0.1", "give arguments by name, and the learning rate by --learning_rate"),
        ("weight_decay=-1", "cannot be used (Invalid weight_decay value: -1): give a class of"),
        ("differentiable=True", "cannot be used (a leaf Variable that requires grad"),
        ("eps=f()", "give Python literals as arguments, such as (size=3, path='x'); they are"),
        ("eps=" + "-" * 10_000 + "1", "give Python literals as arguments"),
    ],
)
def test_wrong_arguments_of_the_optimizer_are_named(arguments: str, said: str) -> None:
    flag = f"torch.optim:AdamW({arguments})"
    with pytest.raises(ConfigError) as caught:
        make_optimizer(Config(optimizer=flag), torch.ones(3), torch.ones(3), 0.1)
    assert str(caught.value).startswith(f"--optimizer={flag}")
    assert said in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LBFGS(history_size=3)", "SparseAdam"])
def test_an_optimizer_that_steps_in_another_way_is_refused_at_the_start(
    name: str, tmp_path: Path
) -> None:
    flag = f"--optimizer=torch.optim:{name}"
    done = run_main("--env_name=CartPole-v1", flag, f"--run_dir={tmp_path / 'run'}")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        f"error: {re.escape(flag)} cannot be used .*: give a class .*\n", done.stderr
    )
    assert not (tmp_path / "run").exists()


def test_a_mask_is_of_the_parameters_whose_names_begin_so() -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 2))
    assert mask_of(model, ["1.w", "0.bias"]).tolist() == [False] * 2 + [True] * 3 + [False] * 2
