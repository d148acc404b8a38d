"""Apply --env_kwargs and --wrapper: keyword arguments and wrappers of an environment."""

import re
from collections.abc import Iterable
from itertools import takewhile
from pkgutil import resolve_name
from typing import Any

from gymnasium import ActionWrapper, Env, ObservationWrapper

from ppo.envs.episodes import layers
from ppo.envs.errors import EnvironmentUnavailable
from ppo.extensions import names_of
from ppo.system.imports import import_named, parse_call

NUMBER = re.compile(r"\{(?:(\d+) *\+ *)?(?:(\d+) *\* *)?index\}")
MISWRITTEN = re.compile(r'\{[^{}"]*(?:index|\d *[+*])[^{}"]*\}')  # such as {index+9000}, {9000+id}
LOST = "has statistics that are in no checkpoint and no evaluation: leave it out,"
ABOUT_WRAPPERS = {
    "gymnasium.wrappers:NormalizeObservation": f"{LOST} --normalize_observations does it here",
    "gymnasium.wrappers:NormalizeReward": f"{LOST} --normalize_rewards does it here",
}
FROM_FLAG = "from_flag"  # an attribute of wrappers that changing_wrappers finds: their text


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
        inner = env
        try:
            _, arguments, options = parse_call(text)
            env = make(inner, *arguments, **options)
            if not isinstance(env, Env):
                raise TypeError(f"it returned {type(env).__name__}, no gymnasium.Env")
            if _changes_spaces(env, inner):
                setattr(env, FROM_FLAG, text)
        except (Exception, SystemExit) as error:  # whatever a wrapper raises
            advice = about_wrapper(make) or (
                "give module:Class of a gymnasium.Wrapper, with literals as arguments"
            )
            raise EnvironmentUnavailable(
                f"--wrapper={text} does not fit the environment ({error}): {advice}"
            ) from error
    return env


def _changes_spaces(env: Env, inner: Env) -> bool:
    """Return whether wrappers change what is observed or done in the environment inside."""
    added = takewhile(lambda layer: layer is not inner, layers(env))
    return any(isinstance(layer, (ActionWrapper, ObservationWrapper)) for layer in added) or any(
        getattr(env, name, None) != getattr(inner, name, None)
        for name in ("observation_space", "action_space")
    )


def changing_wrappers(env: Env) -> tuple[str, ...]:
    """Return those of --wrapper, the innermost first, that change what is observed or done."""
    found = [vars(layer)[FROM_FLAG] for layer in layers(env) if FROM_FLAG in vars(layer)]
    return (*reversed(found),)


def describe_wrappers(wrappers: Iterable[str]) -> str:
    """Return a sentence for the user about changing_wrappers."""
    return (
        f"no part of the policy: {' '.join(f'--wrapper={text}' for text in wrappers)}; predict and "
        "exported files take what that shows and return actions for it, so do what it does where "
        "you use them"
    )


def about_wrapper(kind: Any) -> str:
    """Return what there is to say of a class of wrappers that a flag takes the place of, "" if none
    does."""
    for path, about in (ABOUT_WRAPPERS | names_of("about_wrappers")).items():
        known = resolve_name(path)
        if isinstance(kind, type) and issubclass(kind, known):
            return f"{known.__name__} {about}"
    return ""
