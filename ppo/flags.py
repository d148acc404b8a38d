"""From the texts of a command line, or keyword arguments, to checked values of flags."""

import ast
import inspect
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from ppo.config import Adaptive, Config, Linear, Sizes
from ppo.errors import ConfigError, reason, suggest, wrapped
from ppo.extras import FLAGS as EXTRA_FLAGS

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
    """A field of a dataclass, as a flag. kinds: the types and words to try, in this order."""

    kinds: list[Any]
    is_repeated: bool
    low: float
    high: float
    default: Any
    help: str

    @property
    def form(self) -> str:
        """Describe the values that the flag takes."""
        limits = " > 0" if 0 < self.low < 1 else f" >= {self.low:g}" if self.low > -inf else ""
        if self.high < 1e6:
            limits += f" and <= {self.high:g}"
        words = {
            NoneType: "none",
            bool: "true or false",
            int: f"integer{limits}",
            float: f"number{limits}",
            dict: "JSON",
            str: "string",
            Linear: "linear:<number>",
            Adaptive: "adaptive:<number>",
            Sizes: "sizes like 256,128",
        }
        forms = [x if type(x) is str else words.get(x, "") for x in self.kinds]
        return " or ".join(filter(None, forms)) or "string"


Flags = Mapping[str, Flag]


@cache
def flags_of(kind: type) -> dict[str, Flag]:
    """Return the fields of a dataclass as flags; a docstring below a field is its help."""
    source: Any = ast.parse(inspect.getsource(kind)).body[0]
    docs = {
        field.target.id: " ".join(ast.literal_eval(text.value).split())
        for field, text in pairwise(source.body)
        if isinstance(text, ast.Expr)
    }
    hints = get_type_hints(kind)
    default = kind()
    found = {}
    for field in fields(kind):
        name = field.name
        if name in docs:
            hint = hints[name]
            is_repeated = get_origin(hint) is tuple
            kinds = _alternatives(get_args(hint)[0] if is_repeated else hint)
            low = field.metadata.get("low", -inf)
            high = field.metadata.get("high", inf)
            value = getattr(default, name)
            found[name] = Flag(kinds, is_repeated, low, high, value, docs[name])
    return found


class AllFlags(dict[str, Flag]):
    """The flags of the core, and those of an extra as soon as one of them is asked for."""

    def __init__(self) -> None:
        super().__init__(flags_of(Config))

    def __missing__(self, name: str) -> Flag:
        self.update(flags_of(resolve_name(EXTRA_FLAGS[name])))
        return self[name]


def _alternatives(hint: Any) -> list[Any]:
    found: list[Any] = []
    for part in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        origin = get_origin(part)
        found += get_args(part) if origin is Literal else [origin or part]
    return sorted(found, key=lambda x: x is not NoneType)  # None first


def split(arguments: Sequence[str], flags: Flags) -> tuple[list[str], dict[str, Any]]:
    """Return the words of a command line, and its flags as texts. Raises ConfigError."""
    words = []
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
            follows = rest and not rest[0].startswith("--")
            if is_bool and not (follows and rest[0].lower() in {*BOOLS, "auto"}):
                text = "true"
            elif follows:
                text = rest.pop(0)
            else:
                raise ConfigError(f"--{name} needs a value: --{name}=X")
        if name == "config":
            try:
                content = Path(text).read_text("utf-8-sig")  # with or without a byte order mark
                files |= json.loads(content) if text.endswith(".json") else tomllib.loads(content)
            except (OSError, ValueError, TypeError) as error:
                sentence = f"--config={text} cannot be read as TOML or JSON ({reason(error)})"
                raise ConfigError(sentence) from error
        elif flags[name].is_repeated:
            given.setdefault(name, []).append(text)
        elif name in given:
            raise ConfigError(f"--{name} is given twice: leave one out")
        else:
            given[name] = text
    return words, {known_name(name, flags): x for name, x in files.items()} | given


def known_name(name: str, flags: Flags) -> str:
    """Return the name of a flag, given it or an alias. Raises ConfigError if it is unknown."""
    name = name.replace("-", "_")
    full = ALIASES.get(name, name)
    try:
        flags[full]
    except KeyError:
        known = {*flags, *ALIASES, *EXTRA_FLAGS} - {name}
        raise ConfigError(f"unknown flag --{name}{suggest(name, known)}") from None
    return full


def checked(given: Mapping[str, Any], flags: Flags) -> dict[str, Any]:
    """Return the values of flags, converted to their types. Raises ConfigError."""
    names = {known_name(name, flags): value for name, value in given.items()}
    return {name: _convert(name, value, flags[name]) for name, value in names.items()}


def _convert(name: str, value: Any, flag: Flag) -> Any:
    if flag.is_repeated:
        values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        if Any in flag.kinds or all(isinstance(x, str) for x in values):
            return tuple(x for x in values if x not in ("none", ""))
    for kind in flag.kinds:
        try:
            return kind if value == kind else _parse(kind, value, flag)
        except Exception:  # this kind does not fit
            continue
    text = str(getattr(value, "__name__", value))
    raise ConfigError(f"--{name}={text[:100]}: expected {flag.form}")


def _parse(kind: Any, value: Any, flag: Flag) -> Any:
    if kind is NoneType:
        return {"none": None}[str(value).lower()]
    if kind is bool:
        return BOOLS[str(value).lower()]
    if kind in (int, float) and not isinstance(value, bool):
        return _number(kind, value, flag)
    if kind is dict:
        found = json.loads(value) if isinstance(value, str) else value
        if not isinstance(found, dict) or json.loads(json.dumps(found)) != found:
            raise ValueError
        return found
    if kind in (Linear, Adaptive):
        shape, _, start = value.partition(":")
        _number(float, start, flag)
        if shape == kind.__name__.lower():
            return value
    if kind is Sizes:
        return ",".join(str(_number(int, size, flag)) for size in value.split(","))
    fits = {str: isinstance(value, str), Callable: callable(value), Any: True}
    if fits.get(kind) and value not in (None, ""):
        return value
    raise TypeError


def _number(kind: type, value: Any, flag: Flag) -> Any:
    number = float(value)
    converted = kind(number)
    is_inside = isfinite(number) and flag.low <= number <= flag.high
    if converted != number or not is_inside:
        raise ValueError
    return converted


def help_of(flags: Flags) -> str:
    lines = []
    for name, flag in flags.items():
        default = flag.default
        if isinstance(default, tuple):
            default = ",".join(default) or "none"
        if isinstance(default, bool) or default is None:
            default = str(default).lower()
        text = f"{flag.help} ({flag.form}; default: {default})"
        indent = " " * 6
        lines += [f"  --{name}", wrapped(text, initial_indent=indent, subsequent_indent=indent)]
    return "\n".join(lines)
