"""The meaning of auto for a run, and flags that mean nothing for an environment."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

from ppo.config.config import PRESETS, Config
from ppo.config.resolve import resolve, tuned_config, with_tuned
from ppo.errors import ConfigError
from ppo.policy.load import config_of


def test_values_are_clipped_like_ratios_by_default():
    def value_clip(**flags):
        return resolve(Config(env_name="CartPole-v1", **flags))[0].clip_value_coef

    assert value_clip() == 0.1
    assert value_clip(clip_coef=0.3) == 0.3
    assert value_clip(clip_coef=0.3, clip_value_coef=0.2) == 0.2
    assert value_clip(clip_coef=0.3, clip_value_coef="none") is None


def test_auto_means_what_suits_the_observations_and_the_machine(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    pixels, vectors = (
        resolve(Config(env_name=name))[0] for name in ("PongNoFrameskip-v4", "CartPole-v1")
    )
    expected = {
        "model": ("cnn", "mlp"),
        "hidden_size": (512, 64),
        "share_trunk": (True, False),
        "precision": ("bfloat16", "float32"),
        "normalize_observations": (False, True),
        "normalize_rewards": (False, True),
        "frame_skip": (4, 1),
        "frame_stack": (4, 1),
    }
    assert {name: (getattr(pixels, name), getattr(vectors, name)) for name in expected} == expected
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert resolve(Config(env_name="PongNoFrameskip-v4"))[0].precision == "float32"
    assert (
        resolve(Config(env_name="PongNoFrameskip-v4", precision="bfloat16"))[0].precision
        == "bfloat16"
    )
    assert resolve(Config(env_name="CartPole-v1", clip_rewards=True))[0].normalize_rewards is False


IMAGES = {"frame_stack": 2, "screen_size": 40, "frame_skip": 2}
ATARI = {"noop_max": 5, "end_on_life_loss": True, "sticky_actions": 0.5, "full_action_space": True}


@pytest.mark.parametrize(
    ("env_name", "wrong"),
    [("CartPole-v1", {"screen_size": 40, **ATARI}), ("CarRacing-v3", ATARI)],
)
def test_a_flag_that_means_nothing_for_an_environment_is_refused(env_name, wrong):
    for name, value in wrong.items():
        with pytest.raises(ConfigError, match=f"--{name} means nothing for {env_name}"):
            resolve(Config(env_name=env_name, **{name: value}))


def test_flags_of_images_are_accepted_where_there_are_images():
    config, spaces = resolve(Config(env_name="CarRacing-v3", **IMAGES))
    assert spaces.observations.shape == (40, 40, 2)  # gray
    config, _ = resolve(Config(env_name="PongNoFrameskip-v4", **IMAGES, **ATARI))
    assert vars(config).items() >= {**IMAGES, **ATARI}.items()


def test_actions_are_repeated_and_observations_joined_for_vectors_too():
    config, spaces = resolve(Config(env_name="CartPole-v1", frame_skip=2, frame_stack=3))
    assert (config.frame_skip, config.frame_stack) == (2, 3)
    assert spaces.observations.shape == (12,)


def test_sizes_of_layers_are_for_an_mlp_that_is_not_shared():
    sizes = {"policy_layers": "3,2", "env_name": "CartPole-v1"}
    assert resolve(Config(**sizes))[0].policy_layers == "3,2"
    own = "tests.test_own_model:Own"
    assert resolve(Config(**sizes, model=own))[0].policy_layers == "3,2"
    for wrong in (
        {"share_trunk": True},
        {"model": "lstm"},
        {"env_name": "CarRacing-v3", "frame_skip": 1},
    ):
        with pytest.raises(ConfigError, match="--policy_layers and --value_layers are for an mlp"):
            resolve(Config(**{**sizes, **wrong}))


def test_sticky_actions_follow_the_games_id():
    for name, probability in (("ALE/Pong-v5", 0.25), ("PongNoFrameskip-v4", 0.0)):
        assert resolve(Config(env_name=name))[0].sticky_actions == probability


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
    "tests.test_resolve:Grid": "categories",
    "PongNoFrameskip-v4": "Atari",
    "CartPole-v1": "CartPole-v1",
}


@pytest.mark.parametrize("env_name", FAMILY_OF)
def test_values_follow_from_what_is_observed_and_done(env_name):
    config, tuned = with_tuned({"env_name": env_name}, {})
    path = PRESETS / f"{FAMILY_OF[env_name]}.json"
    assert tuned == json.loads(path.read_text())
    assert config == Config(env_name=env_name, **tuned)


def test_flags_count_more_than_tuned_values():
    config, tuned = with_tuned({"env_name": "Taxi-v4", "gamma": "0.5", "num_minibatches": "8"}, {})
    assert (config.gamma, config.num_minibatches) == (0.5, 8)
    assert config.batch_size is None  # which would count more than --num_minibatches
    assert tuned["learning_rate"] == config.learning_rate
    assert not {"gamma", "batch_size"} & tuned.keys()
    assert with_tuned({"env_name": "Taxi-v4", "preset": "none"}, {})[1] == {}
    assert with_tuned({"env_name": "Taxi-v4"}, {"gamma": 0.7})[0].gamma == 0.7
    resumed = with_tuned({"env_name": "Taxi-v4", "num_minibatches": "8"}, {"batch_size": 128})[0]
    assert resumed.batch_size is None


def test_a_call_of_train_leads_to_a_config():
    tuned = tuned_config("CartPole-v1", gamma=0.5)
    assert config_of("CartPole-v1", None, None, {"gamma": 0.5}) == tuned
    assert (tuned.gamma, tuned.num_epochs) == (0.5, 2)
    plain = Config(env_name="CartPole-v1", gamma=0.5)
    assert config_of("CartPole-v1", Config(), None, {"gamma": 0.5}) == plain
    assert config_of(plain, None, "Other-v0", {"seed": 3}) == replace(
        plain, seed=3, eval_env="Other-v0"
    )
    with pytest.raises(ConfigError, match="train takes one Config"):
        config_of(plain, plain, None, {})
    with pytest.raises(ConfigError, match="unknown flag --gamme: did you mean gamma"):
        tuned_config("CartPole-v1", gamme=0.5)
