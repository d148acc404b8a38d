"""The meaning of auto for a run, and flags that mean nothing for an environment."""

import pytest
import torch

from ppo.config.config import Config
from ppo.config.resolve import resolve
from ppo.errors import ConfigError


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
