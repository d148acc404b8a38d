"""From a frozen, validated dataclass to a command line."""

import argparse
import dataclasses
import difflib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import Field, dataclass, field
from typing import Any, ClassVar, NoReturn

from ppo.errors import ConfigError

AUTO = ("auto",)
NONE = ("none",)
SWITCH: dict[str, Any] = {"kind": bool, "words": AUTO}
COUNT: dict[str, Any] = {"kind": int, "low": 1}
POSITIVE: dict[str, Any] = {"kind": float, "above": 0}
SHARE: dict[str, Any] = {"kind": float, "low": 0, "high": 1}
LIMITS = {"low": "from", "above": "above", "high": "up to"}
KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: 'JSON like {"name": 1}',
}
TRUTH = {"true": True, "1": True, "false": False, "0": False}


def flag(default: Any, help: str, *aliases: str, **limits: Any) -> Any:
    """A field of Flags that takes values of a kind within limits (low, above, high, pattern), or one of some words.
    form: what a pattern stands for. nargs: it must be given, without its name: None for one text, "+" for a tuple of
    one or more."""
    return field(
        default=default,
        metadata={"kind": None, "words": (), **limits, "help": help, "aliases": aliases},
    )


@dataclass(frozen=True)
class Flags:
    """What a command takes. about: what it does. Raises ConfigError if a value is not what its flag takes."""

    about: ClassVar[str]

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            object.__setattr__(self, option.name, _convert(option, getattr(self, option.name)))


def parse_flags(arguments: Sequence[str], kind: type[Flags], command: str = "") -> dict[str, Any]:
    """The texts that a command line gives, by field name, for kind to convert. Prints the help if asked to. Raises
    ConfigError for what is no flag."""
    options: dict[str, Any] = {"allow_abbrev": False, "argument_default": argparse.SUPPRESS}
    parser = _Parser(prog=f"main.py {command}".strip(), description=kind.about, **options)
    for option in dataclasses.fields(kind):
        if "nargs" in option.metadata:
            about: dict[str, Any] = {name: option.metadata[name] for name in ("nargs", "help")}
            parser.add_argument(option.name, metavar=option.name.upper(), **about)
            continue
        name, names = (
            option.name,
            [f"--{name}" for name in (option.name, *option.metadata["aliases"])],
        )
        default = "none" if option.default is None else option.default
        help = f"{option.metadata['help']}; {_expected(option)} (default: {default})"
        if option.metadata["kind"] is bool:
            parser.add_argument(
                *names, dest=name, nargs="?", const="true", metavar="BOOL", help=help
            )
            parser.add_argument(
                f"--no_{name}",
                dest=name,
                action="store_const",
                const="false",
                help=argparse.SUPPRESS,
            )
        else:
            parser.add_argument(*names, dest=name, metavar="VALUE", help=help)
    arguments = [
        re.sub(r"^--[^=]+", lambda name: "--" + name[0][2:].replace("-", "_"), a) for a in arguments
    ]
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        wrong = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(wrong, parser._option_string_actions, n=1)
        raise ConfigError(
            f"unknown flag {wrong}: {f'did you mean {near[0]}?' if near else 'see --help'}"
        )
    return vars(given)


class _Parser(argparse.ArgumentParser):
    """argparse with errors of one sentence each."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def _convert(option: Field, value: Any) -> Any:
    """A value, or its text, as what the field holds. Raises ConfigError if the field cannot hold it."""
    limits, text = option.metadata, str(value)
    if limits.get("nargs"):
        return tuple(map(str, value))
    kind, words, word = limits["kind"], limits["words"], text.lower()
    if callable(value) and "linear:" in words:
        return value
    if word in words and not word.endswith(":"):
        return None if word == "none" and kind else word
    schedule, colon, start = text.rpartition(":")
    prefix, start = (schedule + colon, start) if schedule + colon in words else ("", text)
    try:
        if kind is bool:
            return TRUTH[word]
        if kind is dict:
            read = json.loads(value) if isinstance(value, str) else value
            json.dumps(read, allow_nan=False)  # as a checkpoint is to hold it
            return {**read}
        if kind is str and re.fullmatch(limits.get("pattern", ".+"), text):
            return text
        number = float(start) if kind in (int, float) else math.nan
        in_limits = limits.get("low", number) <= number <= limits.get(
            "high", number
        ) and math.isfinite(number)
        if (
            in_limits
            and number > limits.get("above", -math.inf)
            and (kind is float or number.is_integer())
        ):
            converted = kind(number) if kind is int and not start.isdigit() else kind(start)
            return f"{prefix}{converted}" if prefix else converted
    except (KeyError, TypeError, ValueError, RecursionError):
        pass
    raise ConfigError(f"--{option.name}={text}: give {_expected(option)}")


def _expected(option: Field) -> str:
    """What a field holds, in words."""
    limits = option.metadata
    name = (
        limits.get("form", "module:Name") if "pattern" in limits else KINDS.get(limits["kind"], "")
    )
    bounds = "".join(
        f" {word} {limits[limit]}" for limit, word in LIMITS.items() if limit in limits
    )
    words = [f"{word}<number>" if word.endswith(":") else word for word in limits["words"]]
    return " or ".join(filter(None, [name + bounds, *words]))
