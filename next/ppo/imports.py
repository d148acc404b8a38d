"""Import what a text names: module:Name, file.py:Name, and Name(key=literal) with arguments."""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from ppo.errors import ConfigError, PPOError, reason, suggest


def is_path(text: str) -> bool:
    """Return whether a text names something to import, rather than being a word."""
    return ":" in text.partition("(")[0]


def import_named(text: str, flag: str) -> Any:
    """Import what module:Name or file.py:Name names; Name(key=literal) binds arguments to it.

    flag: the flag that names it, for messages. Raises ConfigError if there is no such module or
    name, or if importing it raises."""
    path, _, arguments = text.partition("(")
    place, _, name = path.rpartition(":")
    module = import_module(place, flag)
    found: Any = module
    for attribute in name.split("."):
        if not hasattr(found, attribute):
            hint = suggest(name, [x for x in vars(module) if not x.startswith("_")])
            raise ConfigError(f"--{flag}={text}: {place} has no {name}{hint}")
        found = getattr(found, attribute)
    if not arguments:
        return found
    return partial(found, **_parse_arguments(f"({arguments}", text, flag))


def import_module(place: str, flag: str) -> ModuleType:
    """Import a module or a file of Python. Raises ConfigError, also for whatever it raises."""
    try:
        return _import_file(place) if place.endswith(".py") else importlib.import_module(place)
    except PPOError:
        raise
    except BaseException as error:  # the user's module may raise anything
        raise ConfigError(f"--{flag}: cannot import {place} ({reason(error)})") from error


def import_class(text: str, flag: str, base: type) -> Callable[..., Any]:
    """Import a class as import_named does. Raises ConfigError unless it is a subclass of base."""
    found = import_named(text, flag)
    kind = found.func if isinstance(found, partial) else found
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ConfigError(f"--{flag}={text} is not a subclass of {base.__name__}")
    return found


def _parse_arguments(call: str, text: str, flag: str) -> dict[str, Any]:
    """Return the keyword arguments of "(key=literal, ...)"."""
    try:
        parsed: Any = ast.parse(f"f{call}", mode="eval").body
        if parsed.args or any(x.arg is None for x in parsed.keywords):
            raise ValueError
        return {x.arg: ast.literal_eval(x.value) for x in parsed.keywords}
    except (SyntaxError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"--{flag}={text}: write arguments as Name(key=value), with literals as values"
        ) from error


def _import_file(place: str) -> ModuleType:
    """Import a file of Python, once. Other processes find it by its name, or, where that is the
    name of another module, get its classes by value."""
    path = Path(place).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {place}")
    if str(path.parent) not in sys.path:  # for the file's own imports; never before others
        sys.path.append(str(path.parent))
    name = path.stem
    found = importlib.util.find_spec(name) if name.isidentifier() else None
    if found and found.origin == str(path):
        return importlib.import_module(name)
    name = f"file:{path}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    cloudpickle.register_pickle_by_value(module)
    return module
