"""The registry of models: which one reads what, and how they are made."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from ppo import train
from ppo.config.config import Config
from ppo.extensions import Model
from ppo.models import MODELS, choose_model, make_model
from ppo.models.actor_critic import FeedForward
from ppo.models.cnn import ImageTrunk
from ppo.models.errors import ModelMismatch
from ppo.models.mlp import VectorTrunk
from tests.running import make_network

VECTOR, IMAGES = spaces.Box(-1, 1, (3,)), spaces.Box(0, 255, (84, 84, 4), np.uint8)
DISCRETE = spaces.Discrete(6)
IMAGE_MODELS = [name for name, entry in MODELS.items() if entry.reads == "images"]


@pytest.mark.parametrize(
    ("space", "name"), [(IMAGES, "cnn"), (VECTOR, "mlp"), (spaces.Box(-1, 1, (84, 84, 4)), "mlp")]
)
def test_auto_chooses_the_model_that_reads_the_observations(space: spaces.Box, name: str) -> None:
    assert choose_model("auto", space) == name


@pytest.mark.parametrize(
    ("name", "space"), [("mlp", VECTOR), *((name, IMAGES) for name in IMAGE_MODELS)]
)
def test_a_model_that_fits_is_kept(name: str, space: spaces.Box) -> None:
    assert choose_model(name, space) == name
    model = make_network(space, DISCRETE, model=name, share_trunk=True)
    assert isinstance(model.policy_trunk, VectorTrunk if name == "mlp" else ImageTrunk)


@pytest.mark.parametrize(
    ("name", "space", "right"),
    [("mlp", IMAGES, "cnn"), *((name, VECTOR, "mlp") for name in IMAGE_MODELS)],
)
def test_a_model_that_does_not_fit_is_answered_with_one_that_does(
    name: str, space: spaces.Box, right: str
) -> None:
    with pytest.raises(ModelMismatch, match=f"^--model={name} .*--model={right}$"):
        choose_model(name, space)


def test_images_of_another_type_are_not_called_vectors() -> None:
    with pytest.raises(ModelMismatch, match=r"these observations are float32 \(50, 40, 3\)"):
        choose_model("cnn", spaces.Box(0, 1, (50, 40, 3)))


@pytest.mark.parametrize("name", MODELS)
def test_each_entry_makes_a_model_as_it_says(name: str) -> None:
    entry = MODELS[name]
    space = IMAGES if entry.reads == "images" else VECTOR
    model = make_network(
        space, DISCRETE, model=name, hidden_size=entry.hidden_size, share_trunk=True
    )
    assert (type(model) is FeedForward) != entry.shares_trunk
    assert (model.state_size > 0) == entry.shares_trunk
    assert model.policy_trunk.num_features == entry.hidden_size


def test_a_model_is_added_by_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Model("tests.models.test_models:make_small_trunk", 7, "vectors")
    monkeypatch.setitem(MODELS, "small", entry)
    assert choose_model("small", VECTOR) == "small"
    with pytest.raises(ModelMismatch, match="--model=small reads vectors"):
        choose_model("small", IMAGES)
    config = SimpleNamespace(**vars(Config(hidden_size=7, share_trunk=False, log_std_init=0.0)))
    config.model = "small"  # which a Config knows only where the registry had it from the start
    model = make_model(config, VECTOR, DISCRETE)
    assert model(torch.zeros(2, 3))[1].shape == (2,)
    assert model.policy_trunk.num_features == 7


def make_small_trunk(observation_space: spaces.Box, config: Config, size: int) -> VectorTrunk:
    return VectorTrunk(observation_space, config, size)


def test_an_unknown_model_is_answered_with_the_known_ones() -> None:
    known = "auto, mlp, cnn, cnn_small, impala, lstm, gru or module:Class"
    with pytest.raises(ModelMismatch, match=f"^--model=mpl is unknown: give {known}$"):
        choose_model("mpl", VECTOR)


def test_a_class_of_your_own_may_read_any_observations() -> None:
    assert choose_model("module:Class", VECTOR) == choose_model("module:Class", IMAGES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Class", r"cannot be imported \(ModuleNotFoundError: No module named 'nowhere'\)"),
        ("ppo.models:nothing", "cannot be imported"),
        ("tests.models.test_models:Config", "fails .*see ppo.models.actor_critic.ActorCritic"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused(name: str, message: str) -> None:
    with pytest.raises(ModelMismatch, match=f"^--model={name} {message}"):
        make_network(VECTOR, DISCRETE, model=name)


def test_flags_for_continuous_actions_are_refused_for_choices(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch, match=r"^--squash_actions is for continuous actions"):
        make_network(VECTOR, DISCRETE, squash_actions=True)
    with pytest.raises(ModelMismatch, match=r"^--use_sde is for continuous actions"):
        train("CartPole-v1", use_sde=True, run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
