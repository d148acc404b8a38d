"""From an environment's id to an environment."""

import difflib
import importlib
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from envs.worker import WHOLE_EPISODE, environment_error

ALIASES = {f"{name}-v2": f"{name}-v3" for name in ("LunarLander", "LunarLanderContinuous", "BipedalWalker")}


class EnvironmentUnavailable(ValueError):
    """No run can start with this environment; the message says why and what to do."""


class Preprocessing(NamedTuple):
    """What is done with an environment that observes images; all but the first three, with an Atari game."""

    frame_stack: int = 4  # images that make an observation
    screen_size: int = 84  # height and width to which they are resized
    frame_skip: int = 1  # frames for which an action is held
    noop_max: int = 30  # frames up to which nothing is done when a game starts
    end_on_life_loss: bool = False
    sticky_actions: float | str = "auto"  # probability that a frame repeats the action before; auto: the game's own
    full_action_space: bool = False  # all 18 actions, also those that do nothing in the game


PREPROCESSING = Preprocessing()


def canonical_id(env_name: str) -> str:
    """The id under which gymnasium still has an environment, where it has given up an old one."""
    # Frames are skipped here, so that an Atari game's ids with and without the emulator's own skip are one game.
    return ALIASES.get(env_name, re.sub(r"Deterministic-(v[04])$", r"NoFrameskip-\1", env_name))


def is_image(space: Any) -> bool:
    """Whether a space is one of images (H, W) or (H, W, C)."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


def atari_spec(env_name: str) -> EnvSpec | None:
    """How gymnasium knows an Atari game that is observed as images; None for all else. Raises EnvironmentUnavailable
    as make_env does."""
    with _unavailable(env_name):
        spec = _spec(env_name)
        is_atari = str(spec.entry_point).startswith("ale_py.env") and spec.kwargs.get("obs_type", "rgb") != "ram"
        return spec if is_atari else None


def make_env(env_name: str, preprocessing: Preprocessing = PREPROCESSING) -> gymnasium.Env:
    """A new environment, by an id that gymnasium knows, or by module:id, which imports the module first. Raises
    EnvironmentUnavailable if there is no such id or something that it needs is missing, WorkerError if it raises."""
    atari = atari_spec(env_name)
    with _unavailable(env_name):
        env: gymnasium.Env
        if atari:
            env = _make_atari(atari, preprocessing)
        else:
            env = gymnasium.make(_spec(env_name), disable_env_checker=True)  # a checker would cost time at every step
            env = gymnasium.wrappers.RecordEpisodeStatistics(env, stats_key=WHOLE_EPISODE)
        if env.observation_space.shape == ():
            return gymnasium.wrappers.ReshapeObservation(env, (1,))
        if is_image(env.observation_space):
            from envs.images import RepeatAction, StackImages

            if preprocessing.frame_skip > 1 and not atari:
                env = RepeatAction(env, preprocessing.frame_skip)
            env = StackImages(env, preprocessing.screen_size, preprocessing.frame_stack)
        return env


def spaces_of(env_name: str, preprocessing: Preprocessing = PREPROCESSING) -> tuple[Any, Any]:
    """Observation and action space. Raises EnvironmentUnavailable as make_env does, and for other kinds of space."""
    env = make_env(env_name, preprocessing)
    env.close()
    if not isinstance(env.observation_space, spaces.Box):
        raise EnvironmentUnavailable(f"--env_name={env_name} observes {env.observation_space}: choose one with a Box")
    if not isinstance(env.action_space, (spaces.Box, spaces.Discrete)):
        raise EnvironmentUnavailable(f"--env_name={env_name} acts in {env.action_space}: choose one with a Discrete")
    return env.observation_space, env.action_space


def _spec(env_name: str) -> EnvSpec:
    """How gymnasium knows an environment."""
    module, _, name = env_name.rpartition(":")
    if module or name not in gymnasium.registry:
        importlib.import_module(module.lstrip(".") or "ale_py")  # ale_py registers the Atari games
    return gymnasium.spec(name)


def _make_atari(spec: EnvSpec, preprocessing: Preprocessing) -> gymnasium.Env:
    """A game up to its screen; whatever frames its id would skip, they are not skipped twice."""
    from ale_py import Action, ALEInterface, LoggerMode

    from envs.atari import AtariGame, EndOnLifeLoss, FireOnReset

    ALEInterface.setLoggerMode(LoggerMode.Error)  # no banner for each of many environments
    options: dict[str, Any] = {"frameskip": 1, "full_action_space": preprocessing.full_action_space}
    if preprocessing.sticky_actions != "auto":
        options["repeat_action_probability"] = preprocessing.sticky_actions
    try:
        emulator = gymnasium.make(spec, disable_env_checker=True, **options)
    except OSError as error:
        fix = "point ALE_ROMS_DIR to a folder that has it, or pip install --force-reinstall ale_py"
        raise gymnasium.error.Error(f"its ROM cannot be read ({error}): {fix}") from error
    game = AtariGame(emulator, preprocessing.frame_skip, preprocessing.noop_max)
    env: gymnasium.Env = gymnasium.wrappers.RecordEpisodeStatistics(game, stats_key=WHOLE_EPISODE)
    env = EndOnLifeLoss(env) if preprocessing.end_on_life_loss else env
    return FireOnReset(env) if Action.FIRE in game.ale.getMinimalActionSet() else env


@contextmanager
def _unavailable(env_name: str) -> Iterator[None]:
    """Turn what goes wrong on the way to an environment into an error that says what to do."""
    module, _, name = env_name.rpartition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is a newer version
            yield
    except gymnasium.error.UnregisteredEnv as error:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "gymnasium.pprint_registry() lists all"
        raise EnvironmentUnavailable(f"--env_name={env_name} is unknown: {hint}") from error
    except (gymnasium.error.Error, ImportError) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) and not module else None
        hint = f": pip install {missing}" if missing else ""
        raise EnvironmentUnavailable(f"--env_name={env_name} cannot be made: {error}{hint}") from error
    except Exception as error:
        raise environment_error(env_name, error) from error
