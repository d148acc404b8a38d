"""Apply --env_kwargs and --wrapper: keyword arguments and wrappers of an environment."""

import re
from collections.abc import Iterable
from typing import Any

from gymnasium import Env

from ppo.envs.errors import EnvironmentUnavailable
from ppo.system.imports import import_named, parse_call

NUMBER = re.compile(r"\{(?:(\d+) *\+ *)?(?:(\d+) *\* *)?index\}")
MISWRITTEN = re.compile(r'\{[^{}"]*(?:index|\d *[+*])[^{}"]*\}')  # such as {index+9000}, {9000+id}


def tasks_of(env_kwargs: dict[str, Any] | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the keyword arguments of all tasks: one, unless --env_kwargs is a list."""
    return env_kwargs if isinstance(env_kwargs, list) else [env_kwargs]


def fill_in(env_kwargs: Any, index: int) -> Any:
    """Replace {index}, {9000+index} and {9000+10*index} in all texts of nested keyword arguments.

    A text that consists of such an expression alone becomes an integer. Raises
    EnvironmentUnavailable for an expression of another form."""

    if isinstance(env_kwargs, dict):
        return {
            str(fill_in(key, index)): fill_in(value, index) for key, value in env_kwargs.items()
        }
    if isinstance(env_kwargs, list):
        return [fill_in(value, index) for value in env_kwargs]
    if not isinstance(env_kwargs, str):
        return env_kwargs

    def number(found: re.Match[str]) -> str:
        return str(int(found[1] or 0) + int(found[2] or 1) * index)

    filled = NUMBER.sub(number, env_kwargs)
    if wrong := MISWRITTEN.search(filled):
        raise EnvironmentUnavailable(
            f"--env_kwargs has {wrong[0]}: give {{index}}, {{9000+index}} or {{9000+10*index}}"
        )
    return int(filled) if NUMBER.fullmatch(env_kwargs) else filled


def wrap(env: Env, wrappers: Iterable[str]) -> Env:
    """Put wrappers around an environment, the first one innermost.

    wrappers: texts such as "module:Class(name=1)". Raises EnvironmentUnavailable for one that
    cannot be imported or made."""
    for text in wrappers:
        make = import_named("wrapper", text.partition("(")[0], EnvironmentUnavailable)
        try:
            _, arguments, options = parse_call(text)
            env = make(env, *arguments, **options)
            if not isinstance(env, Env):
                raise TypeError(f"it returned {type(env).__name__}, no gymnasium.Env")
        except (Exception, SystemExit) as error:  # whatever a wrapper raises
            raise EnvironmentUnavailable(
                f"--wrapper={text} does not fit the environment ({error}): give module:Class of a "
                "gymnasium.Wrapper, with literals as arguments"
            ) from error
    return env
