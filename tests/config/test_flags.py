"""Command lines: what they may say, what --help prints, and the sentence that answers mistakes."""

import dataclasses
import re
import shlex
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ppo.__main__ import main
from ppo.commands import all_commands
from ppo.config.config import Config
from ppo.config.flags import Auto, Count, Flags, as_arguments, flag, parse_flags, run_flag
from ppo.errors import ConfigError, HelpShown
from ppo.extras.tools.tune.command import Tune

FIELDS = dataclasses.fields(Config)
NAMES = [option.name for option in FIELDS]


def config_of(line: str) -> Config:
    return Config(**parse_flags(shlex.split(line), Config))


def error_of(line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config_of(line)
    return str(caught.value)


def assert_one_sentence(message, *named):
    assert "\n" not in message
    for text in named:
        assert text in message


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
        ["wandb"],
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
    assert (config.logger, config.normalize_advantages, config.preset) == (["none"], "none", "none")


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
        config_of("--help")
    sections = re.split(r"\n\n(?=\S)", capsys.readouterr().out)
    titles = [section.partition(":\n")[0] for section in sections]
    added, *core = Config.__bases__
    groups = [*core, *added.__bases__[:-1]]  # those of extensions
    for base in groups:
        section = sections[titles.index(base.__doc__.removesuffix("."))]
        own = [name for name in NAMES if name in base.__annotations__]
        assert re.findall(r"^  --(\w+)", section, re.M) == own
    assert titles[-len(groups)] == "Environment and preprocessing"


@pytest.mark.parametrize("command", all_commands())
def test_help_fits_in_80_columns_and_says_first_what_the_command_does(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    if command != "train":
        assert lines[2] == all_commands()[command].about


@pytest.mark.parametrize("command", all_commands())
def test_every_flag_has_a_plain_sentence(command):
    for option in dataclasses.fields(kind_of(command)):
        assert re.fullmatch(r"[A-Z].*\.", option.metadata["help"]), option.name
    assert all_commands()[command].about.endswith(".")


def kind_of(command: str) -> type[Flags]:
    if command == "train":
        return Config
    found = resolve_name(all_commands()[command].path)
    return found if isinstance(found, type) else Tune


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


def test_names_are_found_by_metadata():
    assert Derived.names() == ("size", "folder", "shape", "path", "weight", "is_heavy")
    assert Derived.names(fixed=True) == ("size", "shape")
    assert Derived.names(fixed=True, live=True) == ("shape",)
    assert Derived.names(scope="run") == ("folder",)
    assert Derived.names(scope="training") == ("size", "shape", "path", "weight", "is_heavy")
    assert Derived.names(unknown=True) == ()


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
            'wrapper = ["a:B", "c:D"]\n[env_kwargs]\nenable_wind = true\n',
        ),
        (
            "flags.json",
            '{"env-id": "LunarLander-v3", "num_envs": 4, "learning_rate": "linear:1e-3",'
            ' "wrapper": ["a:B", "c:D"], "env_kwargs": {"enable_wind": true}}',
        ),
        (
            "flags.yaml",
            "# as W&B, Hydra and others write them\nenv-id: LunarLander-v3\nnum_envs: 4\n"
            "learning_rate: linear:1e-3\nwrapper:\n- a:B\n- c:D\nenv_kwargs:\n"
            "  enable_wind: true\n",
        ),
    ],
)
def test_a_file_of_flags_counts_less_than_the_command_line(
    name: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    config = Config(**parse_flags([f"--config={path}", "--num-envs=2", "--wrapper=e:F"], Config))
    assert config.env_name == "LunarLander-v3"
    assert config.env_kwargs == {"enable_wind": True}
    assert (config.num_envs, config.learning_rate) == (2, "linear:0.001")
    assert config.wrapper == ["e:F"]


def test_lists_in_a_file_of_flags_keep_all_their_entries(tmp_path: Path) -> None:
    path = tmp_path / "flags.toml"
    path.write_text(
        'policy_layers = [256, 128]\nwrapper = ["a:B", "c:D"]\nenv_kwargs = [{x = 1}, {x = 2}]\n'
    )
    config = Config(**parse_flags([f"--config={path}"], Config))
    assert config.policy_layers == "256,128"
    assert config.wrapper == ["a:B", "c:D"]
    assert config.env_kwargs == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("flags.toml", "num_envs = ", "flags.toml: it cannot be read"),
        ("flags.json", "[1]", "flags.json: it cannot be read"),
        ("flags.json", '{"num_env": 2}', "unknown flag --num_env: did you mean --num_envs?"),
        ("flags.json", '{"num_envs": "two"}', "--num_envs=two: expected integer >= 1"),
        ("flags.json", '{"seed": 1, "seed": 2}', "(seed is there twice)"),
        ("flags.toml", "#" * (1 << 18) + "\nseed = 1", "(it has more than 262,144 bytes)"),
        ("flags.yaml", "- seed: 1", "(it holds no flags by name)"),
        ("flags.yaml", "", "(it holds no flags by name)"),
        ("flags.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "(it has an alias (*))"),
        ("flags.yaml", "x: " + "[" * 1000 + "]" * 1000, "(maximum recursion depth exceeded"),
        ("flags.yaml", "env_kwargs: " + "[" * 150 + "]" * 150, "(it has more than 100 levels)"),
        ("flags.yaml", "env_kwargs:\n\ta: 1", "found character"),
        ("flags.yaml", "seed: !!python/object/apply:os.getpid []", "could not determine"),
        ("flags.yaml", "seed: 1\n---\nseed: 2", "but found another document"),
        ("flags.yaml", "name: \x01", "unacceptable character"),
    ],
)
def test_what_is_wrong_in_a_file_of_flags_is_named(
    name: str, text: str, named: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=re.escape(named)):
        Config(**parse_flags([f"--config={tmp_path / name}"], Config))
    with pytest.raises(ConfigError, match=r"none\.toml: it cannot be read"):
        parse_flags([f"--config={tmp_path / 'none.toml'}"], Config)
