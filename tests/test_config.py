"""What a command line may say, what Config makes of it, and the one sentence that answers what it may not say."""

import dataclasses
import json
import re
import shlex
from contextlib import suppress
from pathlib import Path

import gymnasium
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import main
import ppo.commands.commands
import ppo.config.config
from ppo.config.config import Config, load_preset
from ppo.config.flags import parse_flags
from ppo.config.resolve import resolve
from ppo.errors import ConfigError
from tests.running import ROOT

FIELDS = dataclasses.fields(Config)
NAMES = [option.name for option in FIELDS]
PRESETS = sorted((Path(ppo.config.config.__file__).parent / "presets").glob("*.json"))
OTHER_TRAINERS = ("baselines-cnn", "baselines-mlp", "labml-breakout", "lightning", "tutorial")


def config_of(line):
    return Config(**parse_flags(shlex.split(line), Config))


def error_of(line):
    with pytest.raises(ConfigError) as caught:
        config_of(line)
    return str(caught.value)


def assert_one_sentence(message, *named):
    assert "\n" not in message
    for text in named:
        assert text in message


def test_defaults_are_those_of_the_baselines_command_line():
    expected = {
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_coef": 0.1,
        "value_coef": 0.5,
        "entropy_coef": 0.01,
        "num_envs": 8,
        "num_steps": 128,
        "num_epochs": 4,
        "num_minibatches": 4,
        "learning_rate": 2.5e-4,
        "max_grad_norm": 0.5,
        "device": "cpu",
    }
    assert expected.items() <= vars(Config()).items()
    assert config_of("") == Config()


BAD = {
    "learning_rate": [
        *(
            "nan",
            "inf",
            "-inf",
            "0",
            "-0",
            "-0.0",
            "-1",
            "1e31",
            "1e400",
            "fast",
            "",
            "none",
            "True",
        ),
        *(
            "linear",
            "linear:",
            "linear:0",
            "linear:nan",
            "linear:fast",
            "linear:linear:1",
            "falling:1",
            ":1",
        ),
    ],
    "gamma": ["nan", "-0.1", "1.1"],
    "gae_lambda": ["nan", "-1e-9", "2"],
    "clip_coef": ["0", "-0", "inf", "nan"],
    "clip_value_coef": ["0", "-0", "nan", "some", "linear:auto", "linear:none"],
    "value_coef": ["-1", "inf"],
    "entropy_coef": ["-1", "nan"],
    "max_grad_norm": ["-1", "inf", "none"],
    "target_kl": ["0", "-0", "nan"],
    "num_envs": ["0", "-1", "1.5", "1e400", "nan", "many", "", "0x8", "none"],
    "num_steps": ["0", "-0"],
    "num_epochs": ["0"],
    "num_minibatches": ["0", "1025"],
    "num_workers": ["-1", "9", "all"],
    "num_iterations": ["0", "-1"],
    "total_steps": ["0", "1023"],
    "seed": ["-1", "4294967296", "0.5"],
    "hidden_size": ["0"],
    "checkpoint_every": ["0"],
    "eval_episodes": ["-1"],
    "env_name": [""],
    "model": ["", "resnet", "none"],
    "device": ["", "tpu", "cuda:", "cuda:x", "cpu:0"],
    "logger": ["tensorbord", "", "none,wandb", "wandb,"],
    "normalize_advantages": ["batch", ""],
    "torch_deterministic": ["maybe", "2", "", "none"],
    "share_trunk": ["yes"],
    "precision": ["float16", "none"],
    "frame_stack": ["0", "auto", "101"],
    "frame_skip": ["0", "1.5", "none"],
    "screen_size": ["0", "84x84"],
    "noop_max": ["-1"],
    "sticky_actions": ["-0.1", "1.1", "nan"],
    "end_on_life_loss": ["3", "auto"],
    "clip_rewards": ["sign"],
    "normalize_observations": ["maybe", "none"],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts]
)
def test_a_bad_value_is_answered_by_one_sentence_with_its_flag(name, text):
    with pytest.raises(ConfigError) as caught:
        Config(**{name: text})
    assert_one_sentence(str(caught.value), f"--{name}=", ": give ")


@pytest.mark.parametrize(
    "value", [None, [1], True, float("nan"), float("inf"), b"1", object], ids=repr
)
def test_a_value_of_another_kind_is_answered_likewise(value):
    with pytest.raises(ConfigError, match="--num_steps="):
        Config(num_steps=value)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            "--clip_rewards --normalize_rewards",
            ["--normalize_rewards=True", "--clip_rewards=False"],
        ),
        ("--num_envs=2 --num_workers=3", ["--num_workers=3", "--num_envs=2"]),
        ("--num_envs=2 --num_steps=3 --num_minibatches=7", ["--num_minibatches=7", "6 steps"]),
        ("--num_envs=2 --num_steps=30 --total_steps=59", ["--total_steps=59", "60 steps"]),
    ],
)
def test_values_that_contradict_each_other_are_both_named(line, named):
    assert_one_sentence(error_of(line), *named)


def test_values_that_just_agree_are_accepted():
    config = config_of(
        "--num_envs=2 --num_steps=30 --num_workers=2 --num_minibatches=60 --total_steps=60"
    )
    assert (config.rollout_size, config.iterations) == (60, 1)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--lerning_rate=1", ["--lerning_rate", "did you mean --learning_rate?"]),
        ("--num-env=1", ["--num_env", "did you mean --num_envs?"]),
        ("--sed 1", ["--sed", "did you mean --seed?"]),
        ("--zzzzzzzz", ["--zzzzzzzz", "--help"]),
        ("CartPole-v1", ["CartPole-v1", "--help"]),
        ("--no_seed", ["--no_seed"]),
        ("--seed", ["--seed"]),
        ("--lr --seed=1", ["--learning_rate"]),
        ("--no_clip_rewards=True", ["--no_clip_rewards"]),
    ],
)
def test_an_unknown_or_unfinished_flag_is_named_with_its_neighbour(line, named):
    assert_one_sentence(error_of(line), *named)


@pytest.mark.parametrize(
    ("alias", "name", "text", "value"),
    [
        ("env", "env_name", "CartPole-v1", "CartPole-v1"),
        ("env_id", "env_name", "CartPole-v1", "CartPole-v1"),
        ("lr", "learning_rate", "3e-4", 3e-4),
        ("lam", "gae_lambda", "0.9", 0.9),
        ("epsilon", "clip_coef", "0.3", 0.3),
        ("ppo_epochs", "num_epochs", "7", 7),
        ("update_epochs", "num_epochs", "7", 7),
        ("num_batches", "num_minibatches", "8", 8),
        ("value_loss_coef", "value_coef", "1", 1.0),
        ("vf_coef", "value_coef", "1", 1.0),
        ("ent_coef", "entropy_coef", "0", 0.0),
        ("total_timesteps", "total_steps", "2e6", 2_000_000),
    ],
)
def test_aliases_mean_their_flag_in_either_spelling(alias, name, text, value):
    expected = Config(**{name: value})
    assert expected != Config()
    for spelling in (alias, alias.replace("_", "-"), name, name.replace("_", "-")):
        assert config_of(f"--{spelling}={text}") == config_of(f"--{spelling} {text}") == expected


def test_the_readmes_command_lines_are_understood():
    quoted = config_of(
        '--env_name="LunarLander-v2" --model="mlp" --device="cuda" --logger=\'wandb\''
    )
    assert (quoted.env_name, quoted.model, quoted.device, quoted.logger) == (
        "LunarLander-v2",
        "mlp",
        "cuda",
        "wandb",
    )


def test_hyphens_are_only_translated_in_names():
    assert config_of("--run-dir=a-b/c-d=e").run_dir == "a-b/c-d=e"


@pytest.mark.parametrize("spelling", ["", "=True", "=true", "=TRUE", "=1", " true", " 1"])
def test_a_switch_is_turned_on(spelling):
    assert config_of(f"--clip_rewards{spelling}").clip_rewards is True
    assert config_of(f"--clip-rewards{spelling} --seed=1").clip_rewards is True


@pytest.mark.parametrize(
    "flag",
    [f"--normalize_rewards{value}" for value in ("=False", "=false", "=0", " False")]
    + ["--no_normalize_rewards"],
)
def test_a_switch_is_turned_off(flag):
    assert config_of(flag).normalize_rewards is False
    assert config_of(f"{flag.replace('_', '-')} --seed=1").normalize_rewards is False


@pytest.mark.parametrize("text", ["1e6", "1000000", "1000000.0", "1_000_000"])
def test_whole_numbers_may_be_written_as_floats(text):
    total_steps = config_of(f"--total_steps={text}").total_steps
    assert (total_steps, type(total_steps)) == (1_000_000, int)


def test_large_whole_numbers_keep_every_digit():
    assert Config(total_steps="9007199254740993").total_steps == 2**53 + 1


@pytest.mark.parametrize(
    "name", ["num_iterations", "target_kl", "clip_value_coef", "name", "run_dir"]
)
def test_none_turns_off_what_is_optional(name):
    assert getattr(config_of(f"--{name}=none"), name) is None
    assert getattr(Config(**{name: None}), name) is None


def test_none_stays_a_word_where_it_is_a_choice():
    config = config_of("--logger=none --normalize_advantages=none --preset=none")
    assert (config.logger, config.normalize_advantages, config.preset) == ("none", "none", "none")


def test_values_are_clipped_like_ratios_unless_told_otherwise():
    def value_clip(**flags):
        return resolve(Config(env_name="CartPole-v1", **flags))[0].clip_value_coef

    assert value_clip() == 0.1
    assert value_clip(clip_coef=0.3) == 0.3
    assert value_clip(clip_coef=0.3, clip_value_coef=0.2) == 0.2
    assert value_clip(clip_coef=0.3, clip_value_coef="none") is None


def test_iterations_are_whole_rollouts_and_at_most_those_asked_for():
    run = {"total_steps": 200_000, "num_envs": 4, "num_steps": 128}
    assert Config(**run).iterations == 390  # 390.6
    assert Config(**run, num_iterations=10).iterations == 10
    assert Config(**run, num_iterations=391).iterations == 390


def test_a_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().seed = 1


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_is_a_config_named_after_an_environment_or_where_it_is_from(path):
    values = json.loads(path.read_text())
    assert path.stem in gymnasium.registry or path.stem in ("Atari", *OTHER_TRAINERS)
    assert (
        load_preset("auto", path.stem, None) == load_preset(path.stem, "Other-v0", None) == values
    )
    assert Config(env_name=path.stem, **values) != Config(env_name=path.stem)


def test_without_a_preset_nothing_is_tuned():
    assert (
        load_preset("auto", "Other-v0", None) == load_preset("none", PRESETS[0].stem, "Atari") == {}
    )


def test_a_games_own_preset_comes_before_its_familys():
    assert (
        load_preset("auto", "PongNoFrameskip-v4", "Atari")
        == load_preset("Atari", "Other-v0", None)
        != {}
    )
    assert load_preset("auto", "CartPole-v1", "Atari") == load_preset(
        "CartPole-v1", "Other-v0", None
    )


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        load_preset("fast", "CartPole-v1", None)
    assert_one_sentence(str(caught.value), "--preset=fast", *(path.stem for path in PRESETS))


@given(st.sampled_from(NAMES), st.text())
@example("env_name", "\ud800")
@example("num_envs", "\N{SUPERSCRIPT TWO}")
@example("num_envs", "9" * 5000)
@example("total_steps", "1e308")
def test_any_text_for_any_flag_makes_a_config_or_a_config_error(name, text):
    with suppress(ConfigError):
        config = Config(**parse_flags([f"--{name}={text}"], Config))
        assert Config(**dataclasses.asdict(config)) == config


@given(st.lists(st.text() | st.sampled_from(NAMES).map("--{}".format)))
def test_any_command_line_is_parsed_or_a_config_error(arguments):
    with suppress(ConfigError):
        assert parse_flags(arguments, Config).keys() <= set(NAMES)


@pytest.mark.parametrize("line", ["--help", "-h", "--seed=1 --help"])
def test_help_names_every_field_with_its_default_and_exits_0(line, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as caught:
        main.main(shlex.split(line))
    assert caught.value.code == 0
    entries = [" ".join(entry.split()) for entry in re.split(r"\n  (?=-)", capsys.readouterr().out)]
    for option in FIELDS:
        entry = next(entry for entry in entries if re.match(rf"--{option.name}\b", entry))
        assert f" {option.metadata['help']}; " in entry
        assert entry.endswith(f" (default: {'none' if option.default is None else option.default})")
        assert all(re.search(rf"--{alias}\b", entry) for alias in option.metadata["aliases"])


def test_the_page_of_flags_says_what_help_says() -> None:
    page = " ".join((ROOT / "docs" / "flags.md").read_text().split())
    commands = [getattr(ppo.commands.commands, name.capitalize()) for name in main.COMMANDS]
    for kind in (Config, *commands):
        assert " ".join(kind.about.split()) in page
        for option in dataclasses.fields(kind):
            assert " ".join(option.metadata["help"].split()) in page, (
                f"write docs/flags.md again: {option.name}"
            )
    assert page.count(" --") > 60


@pytest.mark.parametrize(
    "line",
    [
        "--lr=nan",
        "--seed='a\nb'",
        "--sed=1",
        "--preset=fast",
        "--env_name=Nope-v0",
        "--num_envs=1e9",
    ],
)
def test_a_bad_command_line_ends_with_2_and_one_line(line, capsys):
    assert main.main(shlex.split(line)) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1


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
