"""What flags add to an environment: keyword arguments and wrappers."""

import ast
import re
from typing import Any

from gymnasium import Wrapper

from ppo.envs.errors import EnvironmentUnavailable
from ppo.system.imports import import_named

EXPRESSION = re.compile(r"\{(?:(\d+) *\+ *)?(?:(\d+) *\* *)?index\}")


def tasks_of(env_kwargs: Any) -> list[dict[str, Any]]:
    """Return the keyword arguments of all tasks: one, unless --env_kwargs is a list."""
    return env_kwargs if isinstance(env_kwargs, list) else [env_kwargs]


def fill_in(value: Any, index: int) -> Any:
    """Replace {index}, {9000+index} and {9000+10*index} in texts, however nested.

    A text that is nothing else becomes an integer."""
    if isinstance(value, dict):
        return {key: fill_in(part, index) for key, part in value.items()}
    if isinstance(value, list):
        return [fill_in(part, index) for part in value]
    if not isinstance(value, str):
        return value
    filled = EXPRESSION.sub(
        lambda found: str(int(found[1] or 0) + int(found[2] or 1) * index), value
    )
    return int(filled) if EXPRESSION.fullmatch(value) else filled


def wrap(env: Any, wrappers: Any) -> Any:
    """Put wrappers around an environment, the first one innermost.

    wrappers: texts such as "module:Class(name=1)". Raises EnvironmentUnavailable for one that
    cannot be imported or made, or is no wrapper."""
    for text in wrappers:
        path, _, arguments = text.partition("(")
        make = import_named("wrapper", path, EnvironmentUnavailable)
        try:
            call: Any = ast.parse(f"wrapper({arguments or ')'}", mode="eval").body
            positional = map(ast.literal_eval, call.args)
            env = make(
                env, *positional, **{x.arg: ast.literal_eval(x.value) for x in call.keywords}
            )
            if not isinstance(env, Wrapper):
                raise TypeError("it makes no gymnasium.Wrapper")
        except Exception as error:  # whatever a wrapper raises
            raise EnvironmentUnavailable(
                f"--wrapper={text} does not fit the environment ({error}): give module:Class of a "
                "gymnasium.Wrapper, with literals as arguments"
            ) from error
    return env
