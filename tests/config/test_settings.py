"""The meaning of auto for a run, and flags that mean nothing for an environment."""

import pytest
import torch

from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.errors import ConfigError


def test_auto_means_what_suits_the_observations_and_the_machine(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    pixels, vectors = (
        settings_of(Config(env_name=name)).config for name in ("PongNoFrameskip-v4", "CartPole-v1")
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
    assert settings_of(Config(env_name="PongNoFrameskip-v4")).config.precision == "float32"
    assert (
        settings_of(Config(env_name="PongNoFrameskip-v4", precision="bfloat16")).config.precision
        == "bfloat16"
    )
    assert (
        settings_of(Config(env_name="CartPole-v1", clip_rewards=True)).config.normalize_rewards
        is False
    )


IMAGES = {"frame_stack": 2, "screen_size": 40, "frame_skip": 2}
ATARI = {"noop_max": 5, "end_on_life_loss": True, "sticky_actions": 0.5, "full_action_space": True}


@pytest.mark.parametrize(
    ("env_name", "wrong"),
    [("CartPole-v1", {"screen_size": 40, **ATARI}), ("CarRacing-v3", ATARI)],
)
def test_a_flag_that_means_nothing_for_an_environment_is_refused(env_name, wrong):
    for name, value in wrong.items():
        with pytest.raises(ConfigError, match=f"--{name} means nothing for {env_name}"):
            settings_of(Config(env_name=env_name, **{name: value}))


def test_flags_of_images_are_accepted_where_there_are_images():
    settings = settings_of(Config(env_name="CarRacing-v3", **IMAGES))
    assert settings.spaces.observations.shape == (40, 40, 2)  # gray
    config = settings_of(Config(env_name="PongNoFrameskip-v4", **IMAGES, **ATARI)).config
    assert vars(config).items() >= {**IMAGES, **ATARI}.items()


def test_actions_are_repeated_and_observations_joined_for_vectors_too():
    settings = settings_of(Config(env_name="CartPole-v1", frame_skip=2, frame_stack=3))
    assert (settings.config.frame_skip, settings.config.frame_stack) == (2, 3)
    assert settings.spaces.observations.shape == (12,)


def test_sizes_of_layers_are_for_an_mlp_that_is_not_shared():
    sizes = {"policy_layers": "3,2", "env_name": "CartPole-v1"}
    assert settings_of(Config(**sizes)).config.policy_layers == "3,2"
    own = "tests.models.test_own_model:Own"
    assert settings_of(Config(**sizes, model=own)).config.policy_layers == "3,2"
    for wrong in (
        {"share_trunk": True},
        {"model": "lstm"},
        {"env_name": "CarRacing-v3", "frame_skip": 1},
    ):
        with pytest.raises(ConfigError, match="--policy_layers and --value_layers are for an mlp"):
            settings_of(Config(**{**sizes, **wrong}))


def test_sticky_actions_follow_the_games_id():
    for name, probability in (("ALE/Pong-v5", 0.25), ("PongNoFrameskip-v4", 0.0)):
        assert settings_of(Config(env_name=name)).config.sticky_actions == probability


def test_auto_stays_auto_where_it_may_follow_another_machine_or_flag():
    settings = settings_of(Config(env_name="CartPole-v1"))
    saved = settings.to_save()
    followed = ("num_workers", "precision", "inference", "clip_value_coef", "log_std_init")
    assert {saved[name] for name in followed} == {"auto"}
    assert (saved["model"], saved["hidden_size"], saved["frame_skip"]) == ("mlp", 64, 1)
    given = settings_of(Config(env_name="CartPole-v1", num_workers=0, precision="float32"))
    assert (given.to_save()["num_workers"], given.to_save()["precision"]) == (0, "float32")
    noisy = settings_of(Config(env_name="Pendulum-v1", use_sde=True))
    assert (settings.config.log_std_init, noisy.config.log_std_init) == (0.0, -2.0)
    assert (noisy.to_save()["log_std_init"], noisy.auto["log_std_init"]) == ("auto", -2.0)
