"""Import what a text names: module:Name, file.py:Name, and Name(key=literal) with arguments."""

import ast
import importlib
import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from ppo.errors import ConfigError, PPOError, reason, suggest


def is_path(text: str) -> bool:
    """Return whether a text names something to import, rather than being a word."""
    return ":" in text.partition("(")[0]


def import_named(thing: Any, flag: str, base: type | None = None) -> Any:
    """Import what a text names: module:Name or file.py:Name; Name(key=literal) binds arguments.
    flag: for messages. Raises ConfigError if that fails, or if it is not of the class base."""
    found = thing
    path, _, arguments = thing.partition("(") if isinstance(thing, str) else ("", "", "")
    if path:
        place, _, name = path.rpartition(":")
        if not place:
            raise ConfigError(f"--{flag}={thing}: give module:Name or file.py:Name")
        found = import_module(place, flag)
        for attribute in name.split("."):
            if not hasattr(found, attribute):
                hint = suggest(attribute, [x for x in dir(found) if not x.startswith("_")])
                raise ConfigError(f"--{flag}={thing}: {place} has no {name}{hint}")
            found = getattr(found, attribute)
    kind = found.func if isinstance(found, partial) else found
    if base and not issubclass(kind if isinstance(kind, type) else type(kind), base):
        raise ConfigError(f"--{flag}={thing} is not a subclass of {base.__name__}")
    if not arguments:
        return found
    try:
        call: Any = ast.parse(f"f({arguments}", mode="eval").body
        if call.args:
            raise ValueError
        return partial(found, **{x.arg: ast.literal_eval(x.value) for x in call.keywords})
    except (SyntaxError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"--{flag}={thing}: write arguments as Name(key=literal)") from error


def import_module(place: str, flag: str) -> ModuleType:
    """Import a module or a file. Raises ConfigError, also for whatever it raises."""
    try:
        return _import_file(place) if place.endswith(".py") else importlib.import_module(place)
    except PPOError:
        raise
    except BaseException as error:  # the user's module may raise anything
        raise ConfigError(f"--{flag}: cannot import {place} ({reason(error)})") from error


def _import_file(place: str) -> ModuleType:
    path = Path(place).resolve()
    if str(path.parent) not in sys.path:  # for the file's own imports; never before others
        sys.path.append(str(path.parent))
    name = path.stem
    found = importlib.util.find_spec(name) if name.isidentifier() else None
    if found and found.origin == str(path):
        return importlib.import_module(name)  # other processes find it by its name
    name = f"file:{path}"  # the name is another module's: they get classes by value
    if name not in sys.modules:
        spec: Any = importlib.util.spec_from_file_location(name, path)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        cloudpickle.register_pickle_by_value(module)
    return sys.modules[name]
