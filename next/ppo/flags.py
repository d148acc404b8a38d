"""From the texts of a command line, or keyword arguments, to checked values of flags."""

import ast
import inspect
import json
import math
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

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


class Flag(NamedTuple):
    """A field of a dataclass, as a flag. kinds: the types and words that it takes, in the order in
    which they are tried; is_repeated: whether it takes several values; low, high: bounds."""

    kinds: list[Any]
    is_repeated: bool
    low: float
    high: float
    default: Any
    help: str

    @property
    def form(self) -> str:
        """Describe the values that the flag takes."""
        low, high = self.low, self.high
        bounds = "" if low < -1e6 else " > 0" if 0 < low < 1 else f" >= {low:g}"
        if high < 1e6:
            bounds += f"{' and' if bounds else ''} <= {high:g}"
        words = {NoneType: "none", bool: "true or false", int: f"integer{bounds}", dict: "JSON"}
        words |= {float: f"number{bounds}", Shape: "linear:<number>", Sizes: "sizes like 256,128"}
        forms = [x if type(x) is str else words.get(x, "") for x in self.kinds]
        return " or ".join(filter(None, forms)) or "a text"


@cache
def flags_of(kind: type) -> dict[str, Flag]:
    """Return the flags that the fields of a dataclass are, by name; a docstring below a field is
    its help."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    body: Any = getattr(node, "body", [])
    docs = {
        ast.unparse(x.target): " ".join(ast.literal_eval(text.value).split())
        for x, text in pairwise(body)
        if isinstance(x, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
    hints = get_type_hints(kind)
    default = kind()
    found = {}
    for field in fields(kind):
        if field.name in docs:
            hint, about = hints[field.name], field.metadata
            is_repeated = get_origin(hint) is tuple
            kinds = _alternatives(get_args(hint)[0] if is_repeated else hint)
            bounds = about.get("low", -math.inf), about.get("high", math.inf)
            value = getattr(default, field.name)
            found[field.name] = Flag(kinds, is_repeated, *bounds, value, docs[field.name])
    return found


def _alternatives(hint: Any) -> list[Any]:
    """Return the types of a union, None first, and a Literal as its words."""
    found: list[Any] = []
    for part in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        origin = get_origin(part)
        found += get_args(part) if origin is Literal else [origin or part]
    return sorted(found, key=lambda x: x is not NoneType)


def split(arguments: Sequence[str], flags: Mapping[str, Flag]) -> tuple[list[str], dict[str, Any]]:
    """Return the words of a command line, and its flags as texts, with those of --config files.
    Raises ConfigError."""
    words: list[str] = []
    given: dict[str, Any] = {}
    files: dict[str, Any] = {}
    rest = [*arguments]
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            words.append(word)
            continue
        name, is_joined, text = word[2:].partition("=")
        if name != "config":
            name = known_name(name, flags)
        if not is_joined:
            is_bool = name in flags and bool in flags[name].kinds
            follows = bool(rest) and not rest[0].startswith("--")
            if is_bool and not (follows and rest[0].lower() in BOOLS):
                text = "true"
            elif follows:
                text = rest.pop(0)
            else:
                raise ConfigError(f"--{name} needs a value: --{name}=X")
        if name == "config":
            files |= _read_file(text)
        elif flags[name].is_repeated:
            given.setdefault(name, []).append(text)
        elif name in given:
            raise ConfigError(f"--{name} is given twice: leave one out")
        else:
            given[name] = text
    return words, {known_name(name, flags): x for name, x in files.items()} | given


def _read_file(path: str) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        return dict(json.loads(text) if path.endswith(".json") else tomllib.loads(text))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--config={path} has no flags in TOML or JSON ({reason(error)})"
        ) from error


def known_name(name: str, flags: Mapping[str, Flag]) -> str:
    """Return the name of a flag, by itself or an alias. Raises ConfigError if it is unknown."""
    full = ALIASES.get(name, name)
    if full not in flags:
        raise ConfigError(f"unknown flag --{name}{suggest(name, [*flags, *ALIASES])}")
    return full


def checked(given: Mapping[str, Any], flags: Mapping[str, Flag]) -> dict[str, Any]:
    """Return the values of flags, converted to the types of the fields that declare them.

    Raises ConfigError for an unknown flag, or a value that it does not take."""
    names = {known_name(name, flags): value for name, value in given.items()}
    return {name: _convert(name, value, flags[name]) for name, value in names.items()}


def _convert(name: str, value: Any, flag: Flag) -> Any:
    if flag.is_repeated:
        values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        parts = [y for x in values for y in (x.split(",") if name == "logger" else [x])]
        return tuple(x for x in parts if x not in ("none", ""))
    for kind in flag.kinds:
        try:
            return kind if value == kind else _parse(kind, value, flag)
        except (LookupError, TypeError, ValueError, OverflowError, SyntaxError):
            continue
    text = str(getattr(value, "__name__", value))
    raise ConfigError(f"--{name}={text[:100]}: give {flag.form}")


def _parse(kind: Any, value: Any, flag: Flag) -> Any:
    """Return a value as one of the types of a flag. Raises one of several exceptions."""
    if kind is NoneType:
        return {"none": None}[str(value).lower()]
    if kind is bool:
        return BOOLS[str(value).lower()]
    if kind in (int, float) and not isinstance(value, bool):
        return _number(kind, value, flag)
    if kind is dict:
        text = value if isinstance(value, str) else json.dumps(value)
        return dict(json.loads(text) if text.startswith("{") else ast.literal_eval(text))
    if kind is Shape:
        shape, _, start = value.partition(":")
        _number(float, start, flag)
        return {"linear": value, "adaptive": value}[shape]
    if kind is Sizes:
        return ",".join(str(_number(int, size, flag)) for size in value.split(","))
    if value in (None, "") or (kind is str and not isinstance(value, str)):
        raise TypeError
    if kind in (str, Any) or (kind is Callable and callable(value)):
        return value
    raise TypeError


def _number(kind: type, value: Any, flag: Flag) -> Any:
    number = float(value)
    is_inside = flag.low <= number <= flag.high
    is_whole = kind is float or number == int(number)
    if not math.isfinite(number) or not is_inside or not is_whole:
        raise ValueError
    return kind(number)


def help_of(flags: Mapping[str, Flag]) -> str:
    """Return what --help says of flags."""
    lines = []
    for name, flag in flags.items():
        default = flag.default
        if isinstance(default, tuple):
            default = ",".join(default) or "none"
        if isinstance(default, bool) or default is None:
            default = str(default).lower()
        text = f"{flag.help} ({flag.form}; default: {default})"
        lines += [f"  --{name}", textwrap.indent(textwrap.fill(text, 72), "      ")]
    return "\n".join(lines)
