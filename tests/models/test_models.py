"""The registry of models: which one reads what, and how they are made."""

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from ppo import train
from ppo.models import MODELS, choose_model
from ppo.models.errors import ModelMismatch
from tests.running import make_network

VECTOR, IMAGES = spaces.Box(-1, 1, (3,)), spaces.Box(0, 255, (84, 84, 4), np.uint8)
DISCRETE = spaces.Discrete(6)


@pytest.mark.parametrize(
    ("space", "name"), [(IMAGES, "cnn"), (VECTOR, "mlp"), (spaces.Box(-1, 1, (84, 84, 4)), "mlp")]
)
def test_auto_chooses_the_model_that_reads_the_observations(space: spaces.Box, name: str) -> None:
    assert choose_model("auto", space) == name


@pytest.mark.parametrize(
    ("name", "space", "right"),
    [("mlp", IMAGES, "cnn"), ("impala", VECTOR, "mlp")],
)
def test_a_model_that_does_not_fit_is_answered_with_one_that_does(
    name: str, space: spaces.Box, right: str
) -> None:
    with pytest.raises(ModelMismatch, match=f"^--model={name} .*--model={right}$"):
        choose_model(name, space)


def test_images_of_another_type_are_not_called_vectors() -> None:
    with pytest.raises(ModelMismatch, match=r"are observation float32 \(50, 40, 3\)"):
        choose_model("cnn", spaces.Box(0, 1, (50, 40, 3)))


def test_an_unknown_model_is_answered_with_the_known_ones() -> None:
    known = f"auto, {', '.join(MODELS)} or module:Class"
    with pytest.raises(ModelMismatch, match=f"^--model=mpl is unknown: give {known}$"):
        choose_model("mpl", VECTOR)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Class", r"cannot be imported \(ModuleNotFoundError: No module named 'nowhere'\)"),
        ("ppo.models:nothing", "cannot be imported"),
        ("ppo.config.config:Config", "fails .*see ppo.models.actor_critic.ActorCritic"),
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
