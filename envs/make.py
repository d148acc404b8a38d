"""From an environment's id to an environment."""

import dataclasses
import difflib
import importlib
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, parse_env_id

from ppo.envs.checks import CheckData
from ppo.envs.episodes import FreshEveryEpisode, RecordEpisode
from ppo.envs.errors import EnvironmentUnavailable, environment_error
from ppo.envs.spaces import ACTION_MASK, can_act_in

ALIASES = {
    f"{name}-v2": f"{name}-v3" for name in ("LunarLander", "LunarLanderContinuous", "BipedalWalker")
}


class Preprocessing(NamedTuple):
    """What an environment is made by: its own arguments, how far it is trusted, what is done with images, and from
    noop_max on what only Atari games have. Each is a flag of the same name."""

    env_kwargs: Mapping[str, Any] = {}
    strict_spaces: bool = False
    fresh_env_per_episode: bool = False
    frame_stack: int = 4
    screen_size: int = 84
    frame_skip: int = 1
    noop_max: int = 30
    end_on_life_loss: bool = False
    sticky_actions: float | str = "auto"
    full_action_space: bool = False


class Spaces(NamedTuple):
    """What observations and actions are, and whether the environment says which actions it allows."""

    observations: spaces.Box
    actions: Any
    has_masks: bool


PREPROCESSING = Preprocessing()


def canonical_id(env_name: str) -> str:
    """The id under which gymnasium still has an environment, where it has given up an old one."""
    ours = re.sub(
        r"Deterministic-(v[04])$", r"NoFrameskip-\1", env_name
    )  # for frames are skipped here
    if ours != env_name and env_name not in gymnasium.registry:
        with suppress(ImportError):
            importlib.import_module("ale_py")
    return ours if ours in gymnasium.registry else ALIASES.get(env_name, env_name)


def is_image(space: Any) -> bool:
    """Whether a space is one of images (H, W) or (H, W, C)."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


def atari_spec(env_name: str, preprocessing: Preprocessing = PREPROCESSING) -> EnvSpec | None:
    """How gymnasium knows an Atari game that is observed as images; None for all else. Raises EnvironmentUnavailable
    as make_env does."""
    with _unavailable(env_name):
        spec = _spec(env_name, preprocessing.env_kwargs)
    return spec if _is_atari(spec) else None


def family(env_name: str, env_kwargs: Mapping[str, Any]) -> str | None:
    """Of which family of environments it is, if that has tuned values of its own. Raises as make_env does."""
    return "Atari" if atari_spec(env_name, Preprocessing(env_kwargs)) else None


def make_env(env_name: str, preprocessing: Preprocessing = PREPROCESSING) -> gymnasium.Env:
    """A new environment, whose observations are in a Box, by an id that gymnasium knows, or by module:id, which imports
    the module first, or by module:Class. Raises EnvironmentUnavailable if there is none, if something that it needs is
    missing, or if there is no reading its observations or acting in it; WorkerError if it raises."""
    with _unavailable(env_name):
        spec = _spec(env_name, preprocessing.env_kwargs)
        env: gymnasium.Env
        if _is_atari(spec):
            env = _make_atari(spec, preprocessing)
        else:
            make = partial(
                gymnasium.make, spec, disable_env_checker=True
            )  # which would cost time at every step
            env = FreshEveryEpisode(make) if preprocessing.fresh_env_per_episode else make()
            env = CheckData(env, preprocessing.strict_spaces)
            if preprocessing.frame_skip > 1:
                from ppo.envs.images import RepeatAction

                env = RepeatAction(env, preprocessing.frame_skip)
            env = RecordEpisode(env)
        space = env.observation_space
        if not space.is_np_flattenable or not can_act_in(env.action_space):
            problem = (
                f"observes {space} and acts in {env.action_space}, of which one has no fixed size"
            )
            raise EnvironmentUnavailable(f"--env_name={env_name} {problem}: choose another")
        parts = space.spaces if isinstance(space, spaces.Dict) else {None: space}
        images = [key for key, part in parts.items() if is_image(part)]
        if len(images) == 1:
            from ppo.envs.images import StackImages

            return StackImages(env, preprocessing.screen_size, preprocessing.frame_stack, images[0])
        if not isinstance(space, spaces.Box):
            return gymnasium.wrappers.FlattenObservation(env)
        return env if space.shape else gymnasium.wrappers.ReshapeObservation(env, (1,))


def spaces_of(env_name: str, preprocessing: Preprocessing = PREPROCESSING) -> Spaces:
    """What there is to observe and to do. Raises EnvironmentUnavailable as make_env does."""
    env = make_env(env_name, preprocessing)
    observations: Any = env.observation_space
    with _unavailable(env_name):
        has_masks = (
            not isinstance(env.action_space, spaces.Box) and ACTION_MASK in env.reset(seed=0)[1]
        )
    env.close()
    return Spaces(observations, env.action_space, has_masks)


def _spec(env_name: str, env_kwargs: Mapping[str, Any]) -> EnvSpec:
    """How gymnasium knows an environment; of an id without a version, the latest."""
    module, _, name = env_name.rpartition(":")
    if module or name not in gymnasium.registry:
        imported = importlib.import_module(
            module.lstrip(".") or "ale_py"
        )  # ale_py registers the Atari games
        if module and name not in gymnasium.registry and hasattr(imported, name):
            return EnvSpec(
                name, getattr(imported, name), order_enforce=False, kwargs=dict(env_kwargs)
            )
    namespace, base, version = parse_env_id(name)
    if version is None:
        version = find_highest_version(namespace, base)
    spec = gymnasium.spec(get_env_id(namespace, base, version))
    # No call is out of order here, and to look at that would cost time at every step.
    return dataclasses.replace(spec, order_enforce=False, kwargs={**spec.kwargs, **env_kwargs})


def _is_atari(spec: EnvSpec) -> bool:
    """Whether it is an Atari game with nothing about it that its emulator alone would not do."""
    special = spec.kwargs.get("continuous") or spec.max_episode_steps or spec.additional_wrappers
    is_seen = spec.kwargs.get("obs_type", "rgb") != "ram"
    return str(spec.entry_point).startswith("ale_py.env") and is_seen and not special


def _make_atari(spec: EnvSpec, preprocessing: Preprocessing) -> gymnasium.Env:
    """A game up to its screen; whatever frames its id would skip, they are not skipped twice."""
    from ale_py import Action, ALEInterface, LoggerMode

    from ppo.envs.atari import AtariGame, EndOnLifeLoss, FireOnReset

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
    env: gymnasium.Env = RecordEpisode(game)
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
    except EnvironmentUnavailable:
        raise
    except gymnasium.error.UnregisteredEnv as error:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3)
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else "gymnasium.pprint_registry() lists all"
        )
        raise EnvironmentUnavailable(f"--env_name={env_name} is unknown: {hint}") from error
    except (gymnasium.error.Error, ImportError) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) and not module else None
        missing = {"cv2": "opencv-python"}.get(str(missing), missing)
        hint = f": pip install {missing}" if missing else ""
        raise EnvironmentUnavailable(
            f"--env_name={env_name} cannot be made: {error}{hint}"
        ) from error
    except Exception as error:
        if re.search(
            r"(unexpected keyword|missing \d+ required).* from the environment creator", str(error)
        ):
            raise EnvironmentUnavailable(
                f"--env_kwargs does not suit --env_name={env_name}: {error}"
            ) from error
        raise environment_error(env_name, error) from error
