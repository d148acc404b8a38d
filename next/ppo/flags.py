"""From the texts of a command line, or keyword arguments, to checked values of flags."""

import argparse
import ast
import inspect
import json
import math
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ppo.config import Shape, Sizes
from ppo.errors import ConfigError, reason, suggest

ALIASES = {
    "env": "env_name",
    "env_id": "env_name",
    "lr": "learning_rate",
    "total_timesteps": "total_steps",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
    "clip_range": "clip_coef",
    "lam": "gae_lambda",
}
BOOLS = {"true": True, "1": True, "false": False, "0": False}


class Parser(argparse.ArgumentParser):
    """Split a command line in words and flags, as texts; --help shows what it takes.

    kinds: dataclasses whose fields are flags; shown: those in the help, None for all."""

    def __init__(self, kinds: Sequence[type], usage: str, shown: Sequence[str] | None = None):
        super().__init__(
            usage=usage, allow_abbrev=False, formatter_class=argparse.RawTextHelpFormatter
        )
        self.kinds = kinds
        self.add_argument("words", nargs="*", help=argparse.SUPPRESS)
        self.add_argument("--config", action="append", help="TOML or JSON file of flags.")
        for name, hint in hints_of(kinds).items():
            is_bool = bool in _alternatives(hint)
            spellings = [name, *(alias for alias, full in ALIASES.items() if full == name)]
            is_shown = shown is None or name in shown
            self.add_argument(
                *(f"--{x}" for x in spellings),
                dest=name,
                action="append",
                nargs="?" if is_bool else None,
                const="true" if is_bool else None,
                metavar="X",
                default=argparse.SUPPRESS,
                help=_help(name, kinds) if is_shown else argparse.SUPPRESS,
            )

    def error(self, message: str) -> Any:
        """Raise a ConfigError."""
        raise ConfigError(message.removeprefix("argument "))

    def split(self, arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
        """Return the words and the flags by name, with those of --config files. Raises
        ConfigError."""
        found, unknown = self.parse_known_intermixed_args(arguments)
        for word in unknown:
            if word.startswith("--"):
                known_name(word.partition("=")[0][2:], hints_of(self.kinds))
            raise ConfigError(f"what is {word}? write flags as --name=value")
        given: dict[str, Any] = {}
        for file in found.config or ():
            given |= _read_file(file)
        for name, hint in hints_of(self.kinds).items():
            if texts := getattr(found, name, None):
                is_repeated = get_origin(hint) is tuple
                if len(texts) > 1 and not is_repeated:
                    raise ConfigError(f"--{name} is given twice: leave one out")
                given[name] = texts if is_repeated else texts[0]
        return found.words, given


def _read_file(path: str) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        return dict(json.loads(text) if path.endswith(".json") else tomllib.loads(text))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--config={path} has no flags in TOML or JSON ({reason(error)})"
        ) from error


def known_name(name: str, hints: Mapping[str, Any]) -> str:
    """Return the name of a flag, by itself or an alias. Raises ConfigError if it is unknown."""
    full = ALIASES.get(name, name)
    if full not in hints:
        raise ConfigError(f"unknown flag --{name}{suggest(name, [*hints, *ALIASES])}")
    return full


def checked(given: Mapping[str, Any], kinds: Sequence[type]) -> dict[str, Any]:
    """Return the values of flags, converted to the types of the fields that declare them.

    Raises ConfigError for an unknown flag, or a value that it does not take."""
    hints = hints_of(kinds)
    about = {x.name: x.metadata for kind in kinds for x in fields(kind)}
    names = {known_name(name, hints): value for name, value in given.items()}
    return {name: _convert(name, x, hints[name], about[name]) for name, x in names.items()}


def _convert(name: str, value: Any, hint: Any, about: Mapping[str, Any]) -> Any:
    """Return a value of a flag, which may be a text, as its type. Raises ConfigError."""
    if get_origin(hint) is tuple:
        values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        split = [y for x in values for y in (x.split(",") if name == "logger" else [x])]
        return tuple(x for x in split if x not in ("none", ""))
    for kind in _alternatives(hint):
        try:
            return kind if value == kind else _parse(kind, value, about)
        except (LookupError, TypeError, ValueError, OverflowError, SyntaxError):
            continue
    text = str(getattr(value, "__name__", value))
    raise ConfigError(f"--{name}={text[:100]}: give {_form(hint, about)}")


def _parse(kind: Any, value: Any, about: Mapping[str, Any]) -> Any:
    """Return a value as one of the types of a flag. Raises one of several exceptions."""
    if kind is NoneType:
        return {"none": None, None: None}[value if value is None else str(value).lower()]
    if kind is bool:
        return BOOLS[str(value).lower()]
    if kind in (int, float) and not isinstance(value, bool):
        return _number(kind, value, about)
    if kind is dict:
        text = value if isinstance(value, str) else json.dumps(value)
        return dict(json.loads(text) if text.startswith("{") else ast.literal_eval(text))
    if kind is str and value and isinstance(value, str):
        return value
    if kind is Shape:
        shape, _, start = value.partition(":")
        _number(float, start, about)
        return {"linear": value, "adaptive": value}[shape]
    if kind is Sizes:
        return ",".join(str(_number(int, size, about)) for size in value.split(","))
    if kind is Any and value not in (None, ""):
        return value
    if kind is Callable and callable(value):
        return value
    raise TypeError


def _number(kind: type, value: Any, about: Mapping[str, Any]) -> Any:
    number = float(value)
    low, high = about.get("low"), about.get("high")
    is_inside = (low is None or number >= low) and (high is None or number <= high)
    is_whole = kind is float or number == int(number)
    if not math.isfinite(number) or not is_inside or not is_whole:
        raise ValueError
    return kind(number)


def _alternatives(hint: Any) -> list[Any]:
    """Return the types of a union in the order in which they are tried; a Literal as its words."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    found: list[Any] = []
    for part in parts:
        origin = get_origin(part)
        found += get_args(part) if origin is Literal else [part if origin is None else origin]
    order = [NoneType, bool, int, float, dict]
    return sorted(found, key=lambda x: order.index(x) if x in order else 9 * (type(x) is not str))


def _form(hint: Any, about: Mapping[str, Any]) -> str:
    """Describe the values that a flag takes."""
    low, high = about.get("low"), about.get("high")
    bounds = "" if low is None else " > 0" if 0 < low < 1 else f" >= {low:g}"
    if high is not None and high < 1e6:
        bounds += f"{' and' if bounds else ''} <= {high:g}"
    kinds = _alternatives(hint)
    words = {NoneType: "none", bool: "true or false", int: f"integer{bounds}"}
    words |= {Shape: "linear:<number>", Sizes: "sizes like 256,128"}
    words |= {float: f"number{bounds}", dict: "JSON", str: "a text", Any: "a text", tuple: "a text"}
    forms = [x if type(x) is str else words.get(x, "") for x in kinds]
    return " or ".join(filter(None, forms))


@cache
def _hints(kind: type) -> dict[str, Any]:
    names = {x.name for x in fields(kind) if x.metadata.get("scope") != "object"}
    return {name: hint for name, hint in get_type_hints(kind).items() if name in names}


def hints_of(kinds: Sequence[type]) -> dict[str, Any]:
    """Return the types of the flags of some dataclasses, by name."""
    return {name: hint for kind in kinds for name, hint in _hints(kind).items()}


def _help(name: str, kinds: Sequence[type]) -> str:
    """Return the docstring below a flag, what it takes and its default."""
    kind = next(x for x in kinds if name in _hints(x))
    default = getattr(kind(), name)
    if isinstance(default, tuple):
        default = ",".join(default) or "none"
    (about,) = [x.metadata for x in fields(kind) if x.name == name]
    shown = str(default).lower() if isinstance(default, bool) or default is None else default
    text = f"{_docstrings(kind)[name]} ({_form(_hints(kind)[name], about)}; default: {shown})"
    return textwrap.fill(text, 54, break_long_words=False, break_on_hyphens=False).replace(
        "%", "%%"
    )


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """Return the docstrings below the fields of a dataclass, by name."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    pairs = zip(node.body, node.body[1:], strict=False)
    return {
        one.target.id: " ".join(str(text.value.value).split())
        for one, text in pairs
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
