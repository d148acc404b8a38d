"""Command lines from frozen, validated dataclasses: each field is a flag."""

import argparse
import dataclasses
import difflib
import inspect
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field
from functools import partial
from typing import Any, NoReturn

from ppo.errors import ConfigError

AUTO = ("auto",)
NONE = ("none",)
SWITCH: dict[str, Any] = {"kind": bool, "words": AUTO}
COUNT: dict[str, Any] = {"kind": int, "low": 1}
POSITIVE: dict[str, Any] = {"kind": float, "above": 0}
FRACTION: dict[str, Any] = {"kind": float, "low": 0, "high": 1}
LIMITS = {"low": "from", "above": "above", "high": "up to"}
KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: 'JSON like {"name": 1}',
}
TRUTH = {"true": True, "1": True, "false": False, "0": False}
DEFAULTS = {
    "words": (),
    "scope": "training",
    "fixed": False,
    "per_host": False,
}


def flag(default: Any, help: str, *aliases: str, **metadata: Any) -> Any:
    """Define a field of Flags: its default, a sentence for --help, and other names.

    Metadata that limits its values:
    kind: bool, int, float, str or dict; by default that of the default, unless there are words and
    no pattern: then nothing but these words is allowed.
    words: values that are allowed besides; one that ends with a colon is followed by a number.
    low, above, high: bounds of a number. pattern: a regular expression; form: its description.
    nargs: the value is required and given without the flag's name: None for one text, "+" for a
    tuple of one or more.

    Metadata that says what the flag is about, for Flags.names:
    scope: "training", or "run" for where a run is and how it is watched.
    fixed: a run cannot be resumed with another value.
    speed: whether it matters for the speed of collecting; by default unless scope is "run".
    per_host: ranks may have different values.
    """
    kind = None
    if "words" not in metadata or "pattern" in metadata:
        kind = type(default)
    defaults = {**DEFAULTS, "kind": kind, "speed": metadata.get("scope") != "run"}
    about = {"help": help, "aliases": aliases}
    return field(default=default, metadata={**defaults, **metadata, **about})


fixed_flag = partial(flag, fixed=True)
run_flag = partial(flag, scope="run")


@dataclass(frozen=True)
class Flags:
    """Base of all sets of flags. Raises ConfigError if a flag does not take its value."""

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            object.__setattr__(self, option.name, _convert(option, getattr(self, option.name)))

    @classmethod
    def names(cls, **metadata: Any) -> tuple[str, ...]:
        """Return the names of the flags that have all of this metadata."""
        return tuple(
            option.name
            for option in dataclasses.fields(cls)
            if metadata.items() <= option.metadata.items()
        )


def parse_flags(
    arguments: Sequence[str], kind: type[Flags], command: str = "", *, about: str = ""
) -> dict[str, Any]:
    """Return the texts that a command line gives, by field name, for kind to convert.

    Prints the help, which begins with about, if asked to: the flags of each base of kind are a
    group, titled by the first line of its docstring. Raises ConfigError for an unknown flag.
    """
    program = f"ppo {command}".strip()
    options = dataclasses.fields(kind)
    values = [option.name.upper() for option in options if "nargs" in option.metadata]
    parser = _Parser(
        usage=" ".join([program, *values, "[--flag=value ...]"]),
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    groups: dict[type, argparse._ActionsContainer] = {kind: parser}
    for option in options:
        owner = next(base for base in kind.__mro__ if option.name in inspect.get_annotations(base))
        if owner not in groups:
            title = str(owner.__doc__).partition("\n")[0].removesuffix(".")
            groups[owner] = parser.add_argument_group(title)
        _add_flag(groups[owner], option)
    given, unknown = parser.parse_known_args([_with_underscores(text) for text in arguments])
    if unknown:
        wrong = unknown[0].partition("=")[0]
        hint = suggest(wrong, parser._option_string_actions, "see --help")
        raise ConfigError(f"unknown flag {wrong}: {hint}")
    return vars(given)


def suggest(word: str, known: Iterable[str], fallback: str) -> str:
    """Ask whether the nearest known word was meant, or return the fallback if none is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    if near:
        return f"did you mean {near[0]}?"
    return fallback


class _Parser(argparse.ArgumentParser):
    """argparse with errors of one sentence each."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def _add_flag(group: argparse._ActionsContainer, option: Field[Any]) -> None:
    """Add a field to the parser, by all its names."""
    metadata = option.metadata
    name = option.name
    help = metadata["help"]
    if "nargs" in metadata:
        group.add_argument(name, metavar=name.upper(), nargs=metadata["nargs"], help=help)
        return
    default = "none" if option.default is None else option.default
    options: dict[str, Any] = {}
    if metadata["kind"] is bool:
        options = {"nargs": "?", "const": "true"}
        hidden = argparse.SUPPRESS
        group.add_argument(
            f"--no_{name}", dest=name, action="store_const", const="false", help=hidden
        )
    group.add_argument(
        *(f"--{spelling}" for spelling in (name, *metadata["aliases"])),
        dest=name,
        metavar="VALUE",
        help=f"{help} Give {_expected(option)} (default: {default})",
        **options,
    )


def _with_underscores(argument: str) -> str:
    """Replace hyphens in a flag's name by underscores; its value stays as it is."""
    name, equals, value = argument.partition("=")
    if name.startswith("--"):
        name = "--" + name[2:].replace("-", "_")
    return name + equals + value


def _convert(option: Field[Any], value: Any) -> Any:
    """Return a value, or its text, as the field holds it.

    Raises ConfigError if the field does not take it.
    """
    metadata = option.metadata
    if metadata.get("nargs"):
        return tuple(map(str, value))
    if callable(value) and "linear:" in metadata["words"]:
        return value
    text = str(value)
    word = text.lower()
    if word in metadata["words"] and not word.endswith(":"):
        if word == "none" and metadata["kind"]:
            return None
        return word
    try:
        return _parse(value, text, metadata)
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ConfigError(f"--{option.name}={text}: give {_expected(option)}") from None


def _parse(value: Any, text: str, metadata: Mapping[str, Any]) -> Any:
    """Convert a value to its kind.

    Raises KeyError, TypeError, ValueError or RecursionError if that or its limits forbid it.
    """
    kind = metadata["kind"]
    if kind is bool:
        return TRUTH[text.lower()]
    if kind is dict:
        if isinstance(value, str):
            value = json.loads(value)
        json.dumps(value, allow_nan=False)  # a checkpoint must be able to hold it
        return {**value}
    if kind is str and re.fullmatch(metadata.get("pattern", ".+"), text):
        return text
    if kind not in (int, float):
        raise ValueError
    schedule, colon, digits = text.rpartition(":")
    if schedule + colon not in ("", *metadata["words"]):
        raise ValueError
    number = _parse_number(digits, metadata)
    if colon:
        return f"{schedule}:{number}"
    return number


def _parse_number(digits: str, metadata: Mapping[str, Any]) -> float:
    """Convert digits to an int or a float. Raises ValueError if it is not within the limits."""
    number = float(digits)
    is_above = number > metadata.get("above", -math.inf)
    is_within = metadata.get("low", number) <= number <= metadata.get("high", number)
    if not (is_above and is_within and math.isfinite(number)):
        raise ValueError
    if metadata["kind"] is float:
        return number
    if digits.isdigit():
        return int(digits)  # every digit of it
    if not number.is_integer():
        raise ValueError
    return int(number)


def _expected(option: Field[Any]) -> str:
    """Describe the values that a field takes."""
    metadata = option.metadata
    name = KINDS.get(metadata["kind"], "")
    if "pattern" in metadata:
        name = metadata.get("form", "module:Name")
    bounds = [f" {word} {metadata[limit]}" for limit, word in LIMITS.items() if limit in metadata]
    words = [word.replace(":", ":<number>") for word in metadata["words"]]
    return " or ".join(filter(None, [name + "".join(bounds), *words]))
