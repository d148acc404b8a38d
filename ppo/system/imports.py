"""Import what users name by flags."""

from pkgutil import resolve_name
from typing import Any

from ppo.errors import ConfigError


def import_named(flag: str, path: str, error_class: type[Exception] = ConfigError) -> Any:
    """Import what a flag names as module:Name. Raises error_class if that fails."""
    try:
        return resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise error_class(
            f"--{flag}={path} cannot be imported ({error}): give module:Name"
        ) from error
    except SystemExit as error:
        raise error_class(
            f"--{flag}={path} cannot be imported, for it calls sys.exit: make it importable"
        ) from error
