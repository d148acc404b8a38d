"""Command lines: what they may say, what --help prints, and the sentence that answers mistakes."""

import dataclasses
import os
import re
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ppo
from ppo.__main__ import main
from ppo.commands import all_commands
from ppo.config.config import Config
from ppo.config.flags import Auto, Count, Flags, as_arguments, flag, parse_flags, run_flag
from ppo.errors import ConfigError, HelpShown
from tests.config.lines import assert_one_sentence, config_of, error_of

FIELDS = dataclasses.fields(Config)
NAMES = [option.name for option in FIELDS]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--lerning_rate=1", ["--lerning_rate", "did you mean --learning_rate?"]),
        ("--num-env=1", ["--num_env", "did you mean --num_envs?"]),
        ("--zzzzzzzz", ["--zzzzzzzz", "--help"]),
        ("CartPole-v1", ["CartPole-v1", "--help"]),
        ("--no_seed", ["--no_seed"]),
        ("--lr --seed=1", ["--learning_rate"]),
        ("--no_clip_rewards=True", ["--no_clip_rewards"]),
    ],
)
def test_an_unknown_or_unfinished_flag_is_named_with_its_neighbour(line, named):
    assert_one_sentence(error_of(line), *named)


ALIASES = {
    "env_name=CartPole-v1": ["env", "env_id"],
    "learning_rate=3e-4": ["lr"],
    "gae_lambda=0.9": ["lam"],
    "clip_coef=0.3": ["epsilon"],
    "num_epochs=7": ["ppo_epochs", "update_epochs"],
    "num_minibatches=8": ["num_batches"],
    "value_coef=1": ["value_loss_coef", "vf_coef"],
    "entropy_coef=0": ["ent_coef"],
    "total_steps=2e6": ["total_timesteps"],
}


@pytest.mark.parametrize("given", ALIASES)
def test_aliases_mean_their_flag_in_either_spelling(given):
    name, text = given.split("=")
    expected = Config(**{name: text})
    assert expected != Config()
    for alias in (name, *ALIASES[given]):
        for spelling in (alias, alias.replace("_", "-")):
            assert config_of(f"--{spelling}={text}") == expected
            assert config_of(f"--{spelling} {text}") == expected


def test_the_readmes_command_lines_are_understood():
    quoted = config_of(
        '--env_name="LunarLander-v2" --model="mlp" --device="cuda" --logger=\'wandb\''
    )
    assert (quoted.env_name, quoted.model, quoted.device, quoted.logger) == (
        "LunarLander-v2",
        "mlp",
        "cuda",
        ["wandb"],
    )


def test_a_switch_is_turned_on():
    for spelling in ("", "=True", "=TRUE", "=1", " true"):
        assert config_of(f"--clip_rewards{spelling}").clip_rewards is True
        assert config_of(f"--clip-rewards{spelling} --seed=1").clip_rewards is True


def test_a_switch_is_turned_off():
    for text in ("normalize_rewards=False", "normalize_rewards 0", "no_normalize_rewards"):
        assert config_of(f"--{text}").normalize_rewards is False
        assert config_of(f"--{text.replace('_', '-')} --seed=1").normalize_rewards is False


def test_whole_numbers_may_be_written_as_floats_and_keep_every_digit():
    for text in ("1e6", "1000000.0", "1_000_000"):
        total_steps = config_of(f"--total_steps={text}").total_steps
        assert (total_steps, type(total_steps)) == (1_000_000, int)
    assert Config(total_steps="9007199254740993").total_steps == 2**53 + 1


def test_none_turns_off_what_is_optional_and_stays_a_word_where_it_is_a_choice():
    for name in ("num_iterations", "target_kl", "run_dir"):
        assert getattr(config_of(f"--{name}=none"), name) is None
        assert getattr(Config(**{name: None}), name) is None
    config = config_of("--logger=none --normalize_advantages=none")
    assert (config.logger, config.normalize_advantages) == (["none"], "none")


@given(st.sampled_from(NAMES), st.text())
@example("env_name", "\ud800")
@example("num_envs", "\N{SUPERSCRIPT TWO}")
@example("num_envs", "9" * 5000)
@example("total_steps", "1e308")
def test_any_text_for_any_flag_makes_a_config_or_a_config_error(name, text):
    with suppress(ConfigError):
        config = Config(**parse_flags([f"--{name}={text}"], Config))
        assert Config(**dataclasses.asdict(config)) == config


@pytest.mark.parametrize("line", ["-h all", "--seed=1 --help=all"])
def test_help_names_every_flag_with_its_sentence_and_default(line, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(HelpShown):
        config_of(line)
    entries = [" ".join(entry.split()) for entry in re.split(r"\n  (?=-)", capsys.readouterr().out)]
    for option in FIELDS:
        entry = next(entry for entry in entries if re.match(rf"--{option.name}\b", entry))
        assert f" {option.metadata['help']} (" in entry
        default = "none" if option.default in (None, ()) else option.default
        if isinstance(default, bool):
            default = str(default).lower()
        assert re.search(rf"; default: {re.escape(str(default))}\)( [A-Z][\w ,()&-]*:)?$", entry)
        assert all(re.search(rf"--{alias}\b", entry) for alias in option.metadata["aliases"])


def test_help_is_in_groups_titled_by_the_classes_that_define_the_flags(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(HelpShown):
        config_of("--help=all")
    sections = re.split(r"\n\n(?=\S)", capsys.readouterr().out)
    titles = [section.partition(":\n")[0] for section in sections]
    added, *core = Config.__bases__
    groups = [*core, *added.__bases__[:-1]]  # those of extensions
    for base in groups:
        section = sections[titles.index(base.__doc__.removesuffix("."))]
        own = [name for name in NAMES if name in base.__annotations__]
        assert re.findall(r"^  --(\w+)", section, re.M) == own
    assert titles[-len(groups)] == "Environment and preprocessing"


def shown(capsys: pytest.CaptureFixture[str], line: str, kind: type[Flags] = Config) -> str:
    """What a command line with --help prints."""
    with pytest.raises(HelpShown):
        parse_flags(line.split(), kind)
    return capsys.readouterr().out


def test_help_shows_the_common_flags_and_lists_the_groups_of_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = shown(capsys, "--seed=1 --help")
    assert len(page.splitlines()) < 90
    common = page.partition("Common flags:")[2].partition("More flags")[0]
    named = re.findall(r"^  --(\w+)", common, re.M)
    assert named == [name for name in NAMES if name in Config.names(common=True)]
    assert {"env_name", "total_steps", "learning_rate"} < {*named}
    assert 10 <= len(named) <= 12
    groups = re.findall(r"^  (\S+) +(\S.*)$", page.partition("=GROUP:\n")[2], re.M)
    found: list[str] = []
    for word, title in groups:
        section = shown(capsys, f"--help={word.upper()}").partition(f"\n{title}:\n")[2]
        found += re.findall(r"^  --(\w+)", section, re.M)
    assert sorted(found) == sorted(NAMES)
    assert_one_sentence(error_of("--help=speed"), "--help=speed: give all, or one of environment, ")


def test_help_shows_all_flags_where_none_is_common(capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(capsys, "--help", Derived)
    assert page == shown(capsys, "--help=all", Derived)
    assert {"size", "folder", "shape"} < {*re.findall(r"^  --(\w+)", page, re.M)}


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("--version", "train --version", "evaluate --version"):
        assert main(line.split()) == 0
        assert capsys.readouterr() == (f"ppo {ppo.__version__}\n", "")


@pytest.mark.parametrize("asked", ["--help", "--help=all"])
@pytest.mark.parametrize("command", all_commands())
def test_help_fits_in_80_columns_and_says_first_what_the_command_does(
    command: str, asked: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, asked]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert all_commands()[command].about.endswith(".")
    if command != "train":
        assert lines[2] == all_commands()[command].about


@pytest.mark.parametrize("command", all_commands())
def test_every_flag_has_a_plain_sentence(command):
    found = Config if command == "train" else resolve_name(all_commands()[command].path)
    if isinstance(found, type):  # else it makes its flags: see the tests of its extra
        for option in dataclasses.fields(found):
            assert re.fullmatch(r"[A-Z].*\.", option.metadata["help"]), option.name


class Base(Flags):
    """A group. And more about it."""

    size: Count = flag(1, "A size.", fixed=True)
    folder: str | None = run_flag(None, "A folder.")


class Derived(Base):
    """A command."""

    shape: Literal["round", "square"] = flag("round", "A shape.", fixed=True, live=True)
    path: str | Auto = flag("auto", "A path.", pattern=r"\w+:\w+", words=["own"])
    weight: float = flag(0.5, "A weight.", "w", low=0)
    is_heavy: bool = flag(False, "Whether it is heavy.")


def test_a_flag_takes_what_its_annotation_allows_and_words_besides():
    assert Derived(weight="2", is_heavy="true", path="a:b").weight == 2.0
    assert [Derived(path=word).path for word in ("auto", "OWN")] == ["auto", "own"]
    assert Derived(shape="Square", folder="none") == Derived(shape="square", folder=None)
    for wrong in ({"shape": "flat"}, {"path": "a"}, {"weight": "-1"}, {"is_heavy": "yes"}):
        with pytest.raises(ConfigError, match=f"--{next(iter(wrong))}="):
            Derived(**wrong)


class Several(Flags):
    """Flags that are repeated."""

    part: list[str] = flag((), "Parts.", pattern="[a-z]+", form="letters")


def test_a_flag_of_a_list_is_repeated() -> None:
    given = parse_flags(["--part=a", "--part=b"], Several)
    assert Several(**given).part == ["a", "b"]
    assert Several(part="a").part == Several(part=["a"]).part == ["a"]
    assert Several().part == []
    assert as_arguments({**given, "seed": 3}) == ["--part=a", "--part=b", "--seed=3"]
    for wrong in (["a", "1"], [1], 3, None):
        with pytest.raises(ConfigError, match=r"--part=.*: expected letters"):
            Several(part=wrong)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "flags.toml",
            'env-id = "LunarLander-v3"\nnum_envs = 4\nlearning_rate = "linear:1e-3"\n'
            'policy_layers = [256, 128]\nwrapper = ["a:B", "c:D"]\n'
            "[env_kwargs]\nenable_wind = true\n",
        ),
        (
            "flags.yaml",
            "# as W&B, Hydra and others write them\nenv-id: LunarLander-v3\nnum_envs: 4\n"
            "learning_rate: linear:1e-3\npolicy_layers: [256, 128]\n"
            "wrapper:\n- a:B\n- c:D\nenv_kwargs:\n"
            "  enable_wind: true\n",
        ),
    ],
)
def test_a_file_of_flags_counts_less_than_the_command_line(
    name: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert Config(**parse_flags([f"--config={path}"], Config)).wrapper == ["a:B", "c:D"]
    config = Config(**parse_flags([f"--config={path}", "--num-envs=2", "--wrapper=e:F"], Config))
    assert config.policy_layers == "256,128"
    assert config.env_name == "LunarLander-v3"
    assert config.env_kwargs == {"enable_wind": True}
    assert (config.num_envs, config.learning_rate) == (2, "linear:0.001")
    assert config.wrapper == ["e:F"]


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("flags.toml", "num_envs = ", "flags.toml: it cannot be read"),
        ("flags.json", "[1]", "flags.json: it cannot be read"),
        ("flags.json", '{"num_env": 2}', "unknown flag --num_env: did you mean --num_envs?"),
        ("flags.json", '{"seed": 1, "seed": 2}', "(seed is there twice)"),
        ("flags.toml", "#" * (1 << 18) + "\nseed = 1", "toml has more than 262,144 bytes)"),
        ("flags.yaml", "- seed: 1", "(it holds no flags by name)"),
        ("flags.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "(it has an alias (*))"),
        ("flags.yaml", "x: " + "[" * 1000 + "]" * 1000, "(maximum recursion depth exceeded"),
        ("flags.yaml", "env_kwargs: " + "[" * 150 + "]" * 150, "(it has more than 100 levels)"),
        ("flags.yaml", "seed: !!python/object/apply:os.getpid []", "could not determine"),
    ],
)
def test_what_is_wrong_in_a_file_of_flags_is_named(
    name: str, text: str, named: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=re.escape(named)):
        Config(**parse_flags([f"--config={tmp_path / name}"], Config))


def test_a_pipe_is_no_file_of_flags(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "flags.toml")
    with pytest.raises(ConfigError, match=r"flags\.toml is not a regular file"):
        parse_flags([f"--config={tmp_path / 'flags.toml'}"], Config)
