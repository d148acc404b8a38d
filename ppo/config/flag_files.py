"""Files of flags for --config: TOML, JSON or YAML."""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any

from ppo.errors import ConfigError
from ppo.system.files import read_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_BYTES = 1 << 18
MAX_LEVELS = 100  # of nested values; pickle and json give up at a few hundred


def read_flags(path: str) -> dict[str, Any]:
    """Read flags from a file of TOML (.toml), YAML (.yaml, .yml) or JSON. Raises ConfigError if it
    cannot be read, is too large or nested too deep, or names a flag twice."""
    try:
        flags = _parse(read_bytes(Path(path), MAX_BYTES).decode(), Path(path).suffix)
        if not isinstance(flags, dict):
            raise ValueError("it holds no flags by name")
        check_nesting(flags)
        json.dumps([x for x in flags.values() if isinstance(x, (dict, list))])  # TOML has dates
        return {name.replace("-", "_"): value for name, value in flags.items()}
    except (OSError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"--config={path}: it cannot be read ({error}): give a file of TOML (num_envs = 16), "
            'YAML (num_envs: 16) or JSON ({"num_envs": 16})'
        ) from error


def _parse(text: str, suffix: str) -> Any:
    """Return the content of a file. Raises ValueError or RecursionError if it cannot be read."""
    if suffix == ".toml":
        return tomllib.loads(text)
    if suffix in (".yaml", ".yml"):
        try:
            import yaml
        except ImportError as error:
            raise ValueError(f"{error}: pip install pyyaml") from error
        try:
            if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
                raise ValueError("it has an alias (*)")  # a few of them may stand for gigabytes
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from error
    return json.loads(text, object_pairs_hook=unique)


def unique(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Return pairs as a dict. Raises ValueError if a name is there twice, or is no text."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if not isinstance(name, str):
            raise ValueError(f"{name} is no name")
        if name in found:
            raise ValueError(f"{name} is there twice")
        found[name] = value
    return found


def check_nesting(value: Any, levels: int = MAX_LEVELS) -> None:
    """Raise RecursionError if lists and dicts are nested in more levels than these."""
    if isinstance(value, (dict, list)):
        if not levels:
            raise RecursionError(f"it has more than {MAX_LEVELS} levels")
        for part in value.values() if isinstance(value, dict) else value:
            check_nesting(part, levels - 1)


def not_in_json(value: Any) -> Iterator[Any]:
    """Yield the parts of a value that JSON would refuse, or give back as something else."""
    if type(value) is dict and all(type(key) is str for key in value):
        for part in value.values():
            yield from not_in_json(part)
    elif type(value) is list:
        for part in value:
            yield from not_in_json(part)
    elif type(value) is float:
        if not math.isfinite(value):
            yield value
    elif type(value) not in (str, bool, int, NoneType):
        yield value
