"""Presets: which file is taken for which environment, and what counts more than it."""

import json
import os

import gymnasium
import numpy as np
import pytest

from ppo.commands.train import configure
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.errors import ConfigError
from ppo.extras.presets.presets import PRESETS as FOLDER
from ppo.extras.presets.presets import load_preset
from ppo.extras.tools.tune.space import SPACES
from tests.config.test_config import assert_one_sentence

PRESETS = sorted(FOLDER.glob("*.json"))


OTHER_TRAINERS = ("baselines-cnn", "baselines-mlp", "labml-breakout", "lightning", "tutorial")


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_is_a_config_named_after_an_environment_or_where_it_is_from(path):
    values = json.loads(path.read_text())
    assert path.stem in gymnasium.registry or path.stem in ("Atari", *SPACES, *OTHER_TRAINERS)
    assert (
        load_preset("auto", path.stem, fail)
        == load_preset("auto", f"EnvPool/{path.stem}", fail)
        == load_preset("auto", "Other-v0", lambda: path.stem)
        == load_preset(path.stem, "Other-v0", fail)
        == load_preset(str(path), "Other-v0", fail)
        == values
    )
    assert Config(env_name=path.stem, **values) != Config(env_name=path.stem)


def fail() -> str:
    raise AssertionError("the environment was looked at")


def test_without_a_preset_nothing_is_tuned():
    assert load_preset("none", PRESETS[0].stem, fail) == {}


@pytest.mark.parametrize("content", ["", "[]", "3", '{"gamme": 1}', '{"gamma": 2}', '{"a": {'])
def test_a_preset_of_ones_own_that_holds_no_flags_is_refused(content, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_preset(str(path), "CartPole-v1", fail)
    assert_one_sentence(str(caught.value), f"--preset={path}: it cannot be read (")


def test_a_pipe_is_no_preset(tmp_path):
    path = tmp_path / "mine.json"
    os.mkfifo(path)
    with pytest.raises(ConfigError) as caught:
        load_preset(str(path), "CartPole-v1", fail)
    assert_one_sentence(str(caught.value), f"--preset={path}: it cannot be read (mine.json is not")


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        load_preset("fast", "CartPole-v1", fail)
    assert_one_sentence(str(caught.value), "--preset=fast", *(path.stem for path in PRESETS))


class Grid(gymnasium.Env):
    """Shows a grid of kinds of things, as MiniGrid does."""

    observation_space = gymnasium.spaces.Box(0, 255, (7, 7, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        return self.observation_space.low, 0.0, True, False, {}


FAMILY_OF = {
    "Taxi-v4": "discrete",
    "tests.environments:Target-v0": "continuous",
    "tests.environments:Picture": "images",
    "CarRacing-v3": "CarRacing-v3",
    "tests.extras.presets.test_presets:Grid": "categories",
    "PongNoFrameskip-v4": "Atari",
    "CartPole-v1": "CartPole-v1",
}


@pytest.mark.parametrize("env_name", FAMILY_OF)
def test_values_follow_from_what_is_observed_and_done(env_name):
    settings = settings_of({"env_name": env_name})
    tuned = json.loads((FOLDER / f"{FAMILY_OF[env_name]}.json").read_text())
    assert settings.given == Config(env_name=env_name, **tuned)
    assert settings.auto["preset"] == FAMILY_OF[env_name]
    (note,) = settings.notes
    assert note.startswith("tuned preset")
    assert "learning_rate=" in note


def test_flags_count_more_than_tuned_values():
    settings = settings_of({"env_name": "Taxi-v4", "gamma": "0.5", "num_minibatches": "8"})
    config = settings.given
    assert (config.gamma, config.num_minibatches) == (0.5, 8)
    assert config.batch_size is None  # which would count more than --num_minibatches
    (note,) = settings.notes
    assert f"learning_rate={config.learning_rate}" in note
    assert "gamma=" not in note
    assert "batch_size=" not in note
    assert settings_of({"env_name": "Taxi-v4", "preset": "none"}).notes == ()
    assert settings_of({"env_name": "Taxi-v4"}, {"gamma": 0.7}).config.gamma == 0.7
    resumed = settings_of({"env_name": "Taxi-v4", "num_minibatches": "8"}, {"batch_size": 128})
    assert resumed.config.batch_size is None


def test_a_familys_preset_follows_from_the_environment_and_its_arguments() -> None:
    _, settings = configure(["--env_name=ALE/Pong-v5"])
    assert settings.config.end_on_life_loss is True
    _, settings = configure(["--env_name=ALE/Pong-v5", '--env_kwargs={"obs_type": "ram"}'])
    assert (settings.config.end_on_life_loss, settings.config.entropy_coef) == (False, 0.01)
    assert "learning_rate=linear:0.001" in settings.notes[0]  # of vectors with discrete actions
