"""Command lines from frozen, validated dataclasses, in which each field is a flag."""

import argparse
import inspect
import json
import math
import os
import re
import reprlib
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import Field, FrozenInstanceError, dataclass, field, fields
from functools import cache, partial
from os import PathLike
from pkgutil import resolve_name
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NoReturn,
    cast,
    get_args,
    get_origin,
)

from typing_extensions import Self, dataclass_transform

from ppo.config.flag_files import MAX_LEVELS, check_nesting, not_in_json, read_flags
from ppo.config.gone import answer_unknown
from ppo.errors import ConfigError, HelpShown

Auto = Literal["auto"]
Count = Annotated[int, ("low", 1)]
Fraction = Annotated[float, ("low", 0), ("high", 1)]
Positive = Annotated[float, ("above", 0)]
IMPORTED = r"([\w.]+|.+\.py):\w+"
CALLED = rf"{IMPORTED}(\(.*\))?"  # as ppo.system.imports.parse_call takes it apart
ImportPath = Annotated[str, ("pattern", IMPORTED), ("form", "module:Name or file.py:Name")]
Call = Annotated[str, ("pattern", CALLED), ("form", "module:Name(name=value, ...)")]
Settings = dict[str, Any]  # values of flags, or their texts, by name
NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
DURATION = {"pattern": r"\d+(\.\d+)?[smhd]", "form": "number and unit, like 90s, 30m, 2h or 1d"}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
LIMITS = {"low": ">=", "above": ">", "high": "<="}
KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "string",
    Any: 'JSON like {"name": 1} or a list of these',
}
TRUTH = {"true": True, "1": True, "false": False, "0": False}


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration such as "90s", "30m", "2h" or "1d"."""
    return float(duration[:-1]) * SECONDS[duration[-1]]


def flag(default: Any, help: str, *aliases: str, **metadata: Any) -> Any:
    """Define a field of Flags: its default, its sentence for --help, and other names of the flag.

    The field's annotation says which values it takes: those of the first type in it (Any: a JSON
    object or a list of them), the words of a Literal, and "none" if it may be None. A flag that
    takes a list of texts is repeated, once for each text.

    Metadata that limits the values:
    words: further words that are allowed. schedules: words that may precede a number, with a colon;
    with these, functions are allowed, too. low, above, high: bounds of a number, of which only
    above is excluded. pattern: a regular expression that the whole text must match; form: its
    description. nargs: the value is required and positional: None for one text, "+" for a list of
    one or more.

    Metadata that says what the flag is about, for Flags.names:
    scope: "training" (saved in checkpoints), or "run" for where a run is and how it is watched.
    fixed: a run cannot be resumed with another value.
    environment: environments are made by it, as by those of EnvironmentFlags.
    imports: its value may name code to import, which a checkpoint alone is not trusted with.
    live: it may change in a running run, see ppo.callbacks.base.Run.change.
    common: --help shows it without being asked for its group.
    needs: "name" of the flag that this one refines, or "name=value": without it, or with another
    value of it, only the default is taken.
    """
    about = {"help": help, "aliases": aliases, "scope": "training", "fixed": False}
    return field(default=default, metadata={**about, "words": (), "schedules": (), **metadata})


fixed_flag = partial(flag, fixed=True)
live_flag = partial(flag, live=True)
run_flag = partial(flag, scope="run")


@dataclass_transform(frozen_default=True)
class Flags:
    """Base class of sets of flags; every subclass becomes a dataclass that does not change.

    Values are converted as by convert. Raises ConfigError if a flag does not take its value. The
    methods of a frozen dataclass are here once: every process would wait for Python to write and
    compile those of thirty subclasses.
    """

    if TYPE_CHECKING:  # every subclass has them
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *values: Any, **given: Any) -> None:
        settings = {option.name: option.default for option in fields(self)}
        given = {**dict(zip(settings, values, strict=False)), **given}
        if unknown := given.keys() - settings.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        vars(self).update({**settings, **given})
        self.__post_init__()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"

    def __post_init__(self) -> None:
        for option in fields(self):
            vars(self)[option.name] = convert(option, getattr(self, option.name))
        for option in fields(self):
            if needs := option.metadata.get("needs"):
                self._check_needed(option.name, *needs.partition("="))

    def _check_needed(self, name: str, needed: str, _: str, value: str) -> None:
        """Raise ConfigError if a flag is given that means nothing without another one."""
        defaults, present = self.defaults(), getattr(self, needed)
        is_given = str(present) == value if value else present != defaults[needed]
        if not is_given and getattr(self, name) != defaults[name]:
            wanted = f"{needed}={value}" if value else needed
            raise ConfigError(f"--{name} means nothing without --{wanted}: give both, or neither")

    @classmethod
    @cache
    def defaults(cls) -> Settings:
        """Return the default of each flag, by name."""
        return check_values(cls, {option.name: option.default for option in fields(cls)})

    @classmethod
    def of(cls, config: "Flags") -> Self:
        """Return a config as one with the flags of this class, which it has if they are those of an
        extension: Config has the flags of all of them."""
        return cast(Self, config)

    @classmethod
    @cache
    def names(cls, **metadata: Any) -> tuple[str, ...]:
        """Return the names of the flags that have all of this metadata."""
        return tuple(
            option.name for option in fields(cls) if metadata.items() <= option.metadata.items()
        )


def parse_flags(
    arguments: Sequence[str],
    kind: type[Flags],
    command: str = "[COMMAND] [ENV]",
    *,
    about: str = "",
) -> Settings:
    """Return the texts that a command line gives, by field name; kind(**texts) converts them.

    --config names a file of further flags; those of the command line take precedence. For --help,
    print about and flags (see _Parser), and raise HelpShown; the flags of each base of kind are a
    group, titled by the first line of its docstring, after those of kind itself. command: its name
    and what it takes beside flags, for the help. Raises ConfigError for an unknown flag, a missing
    value, or an unreadable file.
    """
    options = {option.name: option for option in fields(kind)}
    positional = [option for option in options.values() if "nargs" in option.metadata]
    values = [option.name.upper() for option in positional]
    parser = _Parser(
        usage=" ".join(["ppo", command, *values, "[--flag=value ...]"]),
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        add_help=False,
    )
    parser.add_argument(
        *("-h", "--help"),
        action=_Help,
        nargs="?",
        const="",
        metavar="GROUP",
        help="Show this help, or that of a group of flags, or of all flags.",
    )
    version = f"ppo {resolve_name('ppo:__version__')}"
    parser.add_argument("--version", action="version", version=version, help="Show the version.")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML, YAML or JSON file of flags (learning_rate = 3e-4), which the command line "
        "overrides.",
    )
    for option in positional:
        nargs, help = option.metadata["nargs"], option.metadata["help"]
        parser.add_argument(option.name, metavar=option.name.upper(), nargs=nargs, help=help)
    for base in reversed(kind.__mro__):
        title = str(base.__doc__).partition("\n")[0].removesuffix(".")
        group = parser.add_argument_group(title)  # not shown if it stays empty
        for name in inspect.get_annotations(base):
            if "nargs" not in options[name].metadata:
                action = _add_flag(parser if base is kind else group, options[name])
                if options[name].metadata.get("common"):
                    parser.common.append(action)
    arguments = [_with_underscores(text) for text in arguments]
    parsed, unknown = parser.parse_known_args(arguments)
    given = vars(parsed)
    if "config" in given:
        file_flags = read_flags(given["config"])
        more = {name: value for name, value in file_flags.items() if name not in given}
        for name, value in more.items():
            is_repeated = name in options and get_origin(options[name].type) is list
            if isinstance(value, list) and not is_repeated and dict not in map(type, value):
                more[name] = ",".join(map(str, value))
        parsed, unknown = parser.parse_known_args([*as_arguments(more), *arguments])
        given = vars(parsed)
        del given["config"]
    if unknown:
        wrong = unknown[0].partition("=")[0]
        hint = answer_unknown(wrong, parser._option_string_actions, "see --help=all")
        raise ConfigError(f"unknown flag {wrong}: {hint}")
    return given


def as_arguments(settings: Settings) -> list[str]:
    """Return the arguments of a command line that give these values, each as --name=value."""
    arguments = []
    for name, value in settings.items():
        values = value if isinstance(value, list) else [value]
        if any(isinstance(one, dict) for one in values):
            values = [json.dumps(value)]
        arguments += [f"--{name}={one}" for one in values]
    return arguments


def pasted(**flags: Any) -> str:
    """Return flags with these values, quoted so that they can be pasted into a shell."""
    return shlex.join(as_arguments(flags))


def command_line(*words: str, **flags: Any) -> str:
    """Return a line to paste into a shell: this program, started as it was now, with words (a
    command and its arguments) and flags."""
    arguments = [f"./{word}" if word.startswith("-") else word for word in words]  # no flags
    return shlex.join([*_program(), *arguments, *as_arguments(flags)])


def _program() -> list[str]:
    """Return the words that start this program: those of main.py or of python -m ppo if it was
    started so, else its installed command, if a shell finds that."""
    path = (sys.argv and sys.argv[0]) or "ppo"
    ways = {
        "main.py": ["python", os.path.relpath(path)],
        "ppo/__main__.py": ["python", "-m", "ppo"],
    }
    installed = ["ppo"] if shutil.which("ppo") else [sys.executable, "-m", "ppo"]
    return ways.get(os.path.relpath(os.path.realpath(path), ROOT), installed)


class _Parser(argparse.ArgumentParser):
    """A parser that raises ConfigError with one sentence, or HelpShown, instead of exiting.

    --help shows the command's own flags and the common ones, and lists the groups of the others,
    each of which --help=GROUP shows, by the first word of its title; --help=all shows all flags, as
    --help does where none is common."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.common: list[argparse.Action] = []
        self.asked = ""  # what --help is given

    def format_help(self) -> str:
        positional, options, *groups = self._action_groups
        groups = [group for group in groups if group._group_actions]
        words = [str(group.title).split()[0].lower() for group in groups]
        sections = [(group.title, group._group_actions) for group in (positional, options)]
        word = self.asked.lower()
        is_short = not word and self.common
        if is_short:
            sections.append(("Common flags", self.common))
        elif word in ("", "all"):
            sections += [(group.title, group._group_actions) for group in groups]
        elif word in words:
            found = [group for group, own in zip(groups, words, strict=True) if own == word]
            sections = [(group.title, group._group_actions) for group in found]
        else:
            self.error(f"--help={self.asked}: give all, or one of {', '.join(words)}")
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, actions in sections:
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        if is_short:
            lines = [f"  {x:16}{group.title}" for x, group in zip(words, groups, strict=True)]
            formatter.add_text("\n".join(["More flags, by --help=all or --help=GROUP:", *lines]))
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise HelpShown


class _Help(argparse.Action):
    """Print the help that is asked for."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        parser.asked = values
        parser.print_help()
        parser.exit()


def _add_flag(group: argparse._ActionsContainer, option: Field[Any]) -> argparse.Action:
    """Add a field to the parser, by all its names."""
    metadata = option.metadata
    name = option.name
    help = metadata["help"]
    default = "none" if option.default in (None, ()) else option.default
    if isinstance(default, bool):
        default = str(default).lower()
    options: Settings = {}
    if get_origin(option.type) is list:
        options = {"action": "append"}
    if allowed_values(option)[0] is bool:
        options = {"nargs": "?", "const": "true"}
        group.add_argument(
            f"--no_{name}",
            dest=name,
            action="store_const",
            const="false",
            help=argparse.SUPPRESS,
        )
    return group.add_argument(
        *(f"--{spelling}" for spelling in (name, *metadata["aliases"])),
        metavar="VALUE",
        help=f"{help} ({_expected(option)}; default: {default})",
        **options,
    )


def _with_underscores(argument: str) -> str:
    """Replace hyphens in a flag's name by underscores; its value stays as it is."""
    return re.sub("(?<=^--)[^=]+", lambda name: name[0].replace("-", "_"), argument)


def allowed_values(option: Field[Any]) -> tuple[Any, Settings, Settings]:
    """Return the type of a field's values (None if it takes only words), the value of each word,
    and its metadata together with the limits in its annotation."""
    parts = get_args(option.type) or [option.type]
    leaves = [leaf for part in parts for leaf in get_args(part) or [part]]
    kind = next((leaf for leaf in leaves if leaf in KINDS), None)
    limits: Settings = dict(leaf for leaf in leaves if isinstance(leaf, tuple))
    allowed = [*leaves, *option.metadata["words"]]
    words: Settings = {word: word for word in allowed if isinstance(word, str)}
    if NoneType in leaves:
        words["none"] = None
    return kind, words, {**limits, **option.metadata}


def check_values(kind: type[Flags], values: Settings) -> Settings:
    """Return values or their texts, by flag, as the flags of a class hold them.

    Raises ConfigError for a flag that the class does not have, or a value that it does not take;
    not for two that contradict each other, which only an instance of the class knows."""
    options = {option.name: option for option in fields(kind)}
    if unknown := values.keys() - options:
        wrong = min(unknown)
        hint = answer_unknown(wrong, options, "see ppo --help=all")
        raise ConfigError(f"unknown flag --{wrong}: {hint}")
    return {name: convert(options[name], value) for name, value in values.items()}


def convert(option: Field[Any], value: Any) -> Any:
    """Convert a value, or its text, to what the field holds. Raises ConfigError if the field does
    not take it."""
    try:
        return _convert(option, value)
    except RecursionError:
        raise ConfigError(
            f"--{option.name} is nested too deep: give at most {MAX_LEVELS} levels"
        ) from None
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"--{option.name}={value}: expected {_expected(option)}") from None


def _convert(option: Field[Any], value: Any) -> Any:
    """Convert a value, or its text, to what the field holds.

    Raises KeyError, TypeError, ValueError or RecursionError if the field does not take it.
    """
    kind, words, metadata = allowed_values(option)
    if get_origin(option.type) is list:
        texts = [value] if isinstance(value, str) else value
        return [_check_text(text, metadata) for text in texts]
    if callable(value) and metadata["schedules"]:
        return value
    text = value if isinstance(value, str) else str(value)  # an EnvObject, a str, is kept
    word = text.lower()
    if word in words:
        return words[word]
    if kind is bool:
        return TRUTH[word]
    if kind is Any:
        if isinstance(value, str):
            value = json.loads(value)
        check_nesting(value)
        if isinstance(value, list) and value:
            return [_check_json(entry) for entry in value]
        return _check_json(value)
    if kind is str:
        if not isinstance(value, (str, int, float, PathLike)):
            raise TypeError
        return _check_text(text, metadata)
    schedule, colon, digits = text.rpartition(":")
    number = _parse_number(digits, kind, metadata)
    if not colon:
        return number
    if schedule in metadata["schedules"]:
        return f"{schedule}:{number}"
    raise ValueError


def _check_json(arguments: Any) -> Settings:
    """Return a copy of keyword arguments. Raises TypeError or ValueError if they are none,
    ConfigError if JSON, which a checkpoint holds, would change one of them."""
    for name, value in dict(**arguments).items():
        for part in not_in_json(value):
            text = " ".join(reprlib.repr(part).split())
            raise ConfigError(
                f"--env_kwargs: {name} holds {text}, which a saved run, as JSON, cannot keep as it "
                f"is: from Python give lambda: MyEnv({name}=...) in place of the environment"
            )
    return {**json.loads(json.dumps(arguments))}


def _check_text(text: str, metadata: Settings) -> str:
    """Return a text. Raises ValueError if it does not match the pattern, or has no UTF-8 form."""
    if not re.fullmatch(metadata.get("pattern", ".+"), text):
        raise ValueError
    text.encode()
    return text


def _parse_number(digits: str, kind: type[float], metadata: Settings) -> float:
    """Convert digits to an int or a float. Raises ValueError if it is outside of the limits, not
    finite, or not whole for an int."""
    number = float(digits)
    is_above = number > metadata.get("above", -math.inf)
    is_within = metadata.get("low", number) <= number <= metadata.get("high", number)
    is_whole = kind is float or number % 1 == 0
    if not (is_above and is_within and is_whole and math.isfinite(number)):
        raise ValueError
    if digits.isdigit():
        number = kind(digits)  # exact, where a float would be rounded
    return kind(number)


def _expected(option: Field[Any]) -> str:
    """Return a description of the values that a field takes."""
    kind, words, metadata = allowed_values(option)
    name = metadata.get("form", KINDS.get(kind, ""))
    bounds = [f"{sign} {metadata[limit]}" for limit, sign in LIMITS.items() if limit in metadata]
    schedules = [f"{schedule}:<number>" for schedule in metadata["schedules"]]
    values = f"{name} {' and '.join(bounds)}".strip()
    return " or ".join(filter(None, [values, *schedules, *words]))
