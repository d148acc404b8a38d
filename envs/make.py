"""Make an environment from its id."""

import dataclasses
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

import gymnasium
from gymnasium import Env, Space, Wrapper
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, parse_env_id

from ppo.envs.batches import Batch, adapt
from ppo.envs.checks import CheckData
from ppo.envs.columns import Columns
from ppo.envs.env_factories import EnvObject, unpickle
from ppo.envs.env_kwargs import fill_in, tasks_of, wrap
from ppo.envs.envpool import PREFIX as ENVPOOL
from ppo.envs.envpool import make_envpool
from ppo.envs.episodes import FreshEveryEpisode, RecordEpisode
from ppo.envs.errors import EnvironmentUnavailable, worker_error
from ppo.envs.families import FAMILIES
from ppo.envs.frame_skip import RepeatAction, stack_vectors
from ppo.envs.heartbeat import CLOSE, HEARTBEAT, RENDER, RESET, START, STEP
from ppo.envs.observations import can_observe, num_numbers, observe
from ppo.envs.spaces import find_empty, holds_numbers
from ppo.envs.teams import Team, TeamMade, is_team
from ppo.errors import PPOError, suggest
from ppo.system.hardware import physical_memory
from ppo.system.imports import import_code
from ppo.system.signals import RAISED_BY_SIGNALS

ALIASES = {
    "LunarLander-v2": "LunarLander-v3",
    "LunarLanderContinuous-v2": "LunarLanderContinuous-v3",
    "BipedalWalker-v2": "BipedalWalker-v3",
}
COPIES = 8  # of an observation that a process holds at once: bounds of its spaces, and results
# Of gymnasium's messages about wrong keyword arguments, and about classes that are not an Env.
UNSUITABLE = (
    r"(unexpected keyword|multiple values|missing (\d+ )?required).* from the environment creator|"
    "inherit from the gymnasium.Env|update the environment class"
)


def canonical_id(env_name: str) -> str:
    """Return the current id of an environment, if gymnasium has removed the given one."""
    for family in FAMILIES:
        current = family.canonical_id(env_name)
        if current != env_name:
            import_module(family.module)
        if current in gymnasium.registry:
            return current
    return ALIASES.get(env_name, env_name)


def find_family(env_name: str, env_kwargs) -> tuple[str, str | None, Any]:
    """Return an environment's current id, the name of its family (None without one), and what
    "auto" means for its flags, by name. Raises EnvironmentUnavailable if there is no such
    environment, or WorkerError for what its module raises."""
    env_name = canonical_id(env_name)
    with explained_errors(env_name):
        spec, family = _look_up(env_name, env_kwargs)
    if family is None:
        return env_name, None, {"frame_skip": 1}
    return env_name, family.name, family.auto_values(spec)


def make_env(config, index: int = 0) -> Env:
    """Make an environment with all wrappers, whose observations are arrays in one Box.

    config: a resolved ppo.config.config.Config, of which the flags of EnvironmentFlags are used;
    index: the environment's number in the whole run, which --env_kwargs may contain, and which a
    class or function with a parameter of this name is given.
    Raises EnvironmentUnavailable if there is none, if a package is missing, or if its spaces are of
    a kind that no policy can use; WorkerError if it raises."""
    env_name = config.env_name
    tasks = tasks_of(config.env_kwargs)
    with explained_errors(env_name):
        spec, family = _look_up(env_name, fill_in(tasks[index % len(tasks)], index))
        HEARTBEAT.beat(START)
        if makes_batches(spec):
            env: Env = make_columns(config, [index], [0], alone=True).envs[0]
        else:
            if _takes(spec.entry_point, "index"):
                spec.kwargs.setdefault("index", index)
            env = _preprocess(config, (family.make if family else _make_checked)(spec, config))
        return Watched(env) if HEARTBEAT.is_watched else env


def make_columns(
    config, indices: Sequence[int], seeds: Sequence[int], alone: bool = False
) -> Columns:
    """Make a batch whose columns have all wrappers of make_env: as many as there are indices, or
    one team if that has more.

    config: as in make_env; indices: of the columns in the whole run; seeds: of their first
    episodes, for batches that take them as they are made; alone: as of Columns. Raises as make_env
    does."""
    env_name = config.env_name
    with explained_errors(env_name):
        _check_batch_flags(config)
        spec, _ = _look_up(env_name, fill_in(tasks_of(config.env_kwargs)[0], indices[0]))
        HEARTBEAT.beat(START)
        if makes_batches(spec):
            batch: Batch = _make_batch(spec, config, indices, seeds)
        else:
            batch = _make_team(spec, config, indices)
        batch.spec = spec
        _check_spaces(config, batch)
        return Columns(batch, partial(_wrap_column, config), alone)


def makes_batches(spec: EnvSpec) -> bool:
    """Return whether a spec makes batches: its class or function has a parameter "num_envs", or it
    has nothing but a vector entry point."""
    return spec.entry_point is None or _takes(spec.entry_point, "num_envs")


def _make_batch(spec: EnvSpec, config, indices: Sequence[int], seeds: Sequence[int]) -> Batch:
    """Make a batch of as many environments as there are indices."""
    make: Any = spec.entry_point
    kwargs = {**spec.kwargs, "num_envs": len(indices)}
    limit = config.max_episode_steps
    if make is None:
        make = partial(gymnasium.make_vec, spec, vectorization_mode="vector_entry_point")
        kwargs = {"num_envs": len(indices)}
    offered = {"index": indices[0], "seeds": [*seeds], "max_episode_steps": limit}
    taken = {name: value for name, value in offered.items() if _takes(make, name)}
    made = make(**{**taken, **kwargs})
    if isinstance(made, Batch):
        return made
    return adapt(made, None if "max_episode_steps" in taken else limit, len(indices))


def _make_team(spec: EnvSpec, config, indices: Sequence[int]) -> Team:
    """Make copies of a ParallelEnv, with an agent for each index; one if there are fewer."""
    make: Any = spec.entry_point
    copies: list[Any] = []
    start = 0
    while not copies or start < len(indices):
        kwargs = spec.kwargs
        if copies:
            env_kwargs = tasks_of(config.env_kwargs)[0]
            kwargs = _look_up(config.env_name, fill_in(env_kwargs, indices[start]))[0].kwargs
        if _takes(make, "index"):
            kwargs = {"index": indices[start], **kwargs}
        made = make(**kwargs)
        if not is_team(made):
            raise TypeError("it must inherit from the gymnasium.Env class, or be a ParallelEnv")
        copies.append(made)
        start += len(made.possible_agents)
    return Team(copies, config.max_episode_steps)


def _preprocess(config, env: Env) -> Env:
    """Join the parts of an environment's observations in one Box, and stack them."""
    frame_stack = config.frame_stack
    num_images = 4 if frame_stack == "auto" else frame_stack
    env = observe(env, config.image, config.screen_size, num_images)
    if frame_stack not in ("auto", 1) and not getattr(env, "stacks", ()):
        env = stack_vectors(env, frame_stack)
    return env


def _wrap_column(config, column: Env) -> Env:
    """Put the wrappers of a single environment around a column."""
    return _preprocess(config, RecordEpisode(CheckData(column, config.strict_spaces)))


def _check_batch_flags(config) -> None:
    """Raise EnvironmentUnavailable for flags that a batch or a team cannot obey."""
    flags = {
        f"frame_skip={config.frame_skip}": config.frame_skip not in ("auto", 1),
        "fresh_env_per_episode=True": config.fresh_env_per_episode,
        f"wrapper={','.join(config.wrapper)}": bool(config.wrapper),
        "env_kwargs with a list of tasks": len(tasks_of(config.env_kwargs)) > 1,
    }
    for name, is_given in flags.items():
        if is_given:
            raise EnvironmentUnavailable(
                f"--{name}: {config.env_name} steps several environments at once, for which this "
                "means nothing: leave it out, or do it where they are made"
            )


def _look_up(env_name: str, env_kwargs) -> tuple[EnvSpec, Any]:
    """Return an environment's EnvSpec, of the latest version if the id has none, and its family.

    The family is None if no class of FAMILIES matches."""
    module, _, name = env_name.rpartition(":")
    maker = None
    if isinstance(env_name, EnvObject):
        name = env_name.strip("<>")
        maker = unpickle(env_name.pickled)
    elif module:
        imported = import_code(module)
        if name not in gymnasium.registry:
            maker = getattr(imported, name, None)
            if maker is None and hasattr(imported, "__path__") and find_spec(f"{module}.{name}"):
                maker = import_module(f"{module}.{name}")
    elif name.startswith(ENVPOOL):
        maker = partial(make_envpool, name)
    elif name not in gymnasium.registry:
        for family in FAMILIES:
            import_module(family.module)
    if maker is not None:
        maker = getattr(maker, "parallel_env", maker)  # of one of PettingZoo's modules
        if not callable(maker):
            raise EnvironmentUnavailable(
                f"--env_name={env_name} is {type(maker).__name__}, which makes nothing: give a "
                "class or a function"
            )
        if isinstance(maker, type) and issubclass(maker, Wrapper):
            maker = partial(maker)  # gymnasium 1.3 refuses a class of wrappers
        known = gymnasium.registry.get(name.removeprefix(ENVPOOL))
        spec = EnvSpec(name, maker, getattr(known, "reward_threshold", None))
    else:
        namespace, base, version = parse_env_id(name)
        if version is None:
            version = find_highest_version(namespace, base)
        spec = gymnasium.spec(get_env_id(namespace, base, version))
    # No order check: workers call reset before step, and the check would slow every step.
    spec = dataclasses.replace(spec, order_enforce=False, kwargs={**spec.kwargs, **env_kwargs})
    for family in FAMILIES:
        if family.matches(spec):
            return spec, family
    return spec, None


def _make_checked(spec: EnvSpec, config) -> Env:
    """Make an environment with the user's wrappers, CheckData, RepeatAction and RecordEpisode."""

    entry_point: Any = spec.entry_point
    if not isinstance(entry_point, str) and not _is_env_class(entry_point):
        spec = dataclasses.replace(spec, entry_point=partial(_make_single, spec.id, entry_point))

    def make():
        # gymnasium's own checker would cost time at every step.
        env = gymnasium.make(spec, config.max_episode_steps, disable_env_checker=True)
        if any(hasattr(env.unwrapped, name) for name in ("num_envs", "all_env_ids")):
            raise TypeError("it must inherit from the gymnasium.Env class, and be one, not many")
        env = wrap(env, config.wrapper)
        _check_spaces(config, env)
        return env

    env = FreshEveryEpisode(make) if config.fresh_env_per_episode else make()
    env = CheckData(env, config.strict_spaces)
    if config.frame_skip > 1:
        env = RepeatAction(env, config.frame_skip)
    return RecordEpisode(env)


def _is_env_class(entry_point) -> bool:
    return isinstance(entry_point, type) and issubclass(entry_point, Env)


def _make_single(name: str, make: Callable[..., Any], /, **kwargs):
    """Return what a user's class or function makes. Raises TeamMade if that is a team."""
    made = make(**kwargs)
    if is_team(made):
        made.close()
        raise TeamMade(f"{name} makes a team of agents, not an environment for one of them")
    return made


def _takes(entry_point, name: str) -> bool:
    """Return whether a class or function has a parameter; those written in C tell none."""
    with suppress(TypeError, ValueError):
        return name in signature(entry_point).parameters
    return False


def _check_spaces(config, env: Env | Batch) -> None:
    """Raise EnvironmentUnavailable if no policy can use an environment's spaces."""
    observes = getattr(env, "observation_space", None)
    actions = getattr(env, "action_space", None)
    about = f"--env_name={config.env_name} observes {observes} and acts in {actions}"
    if not (isinstance(observes, Space) and isinstance(actions, Space)):
        raise EnvironmentUnavailable(f"{about}: give it both spaces, of gymnasium.spaces")
    if not (can_observe(observes) and holds_numbers(actions)):
        raise EnvironmentUnavailable(
            f"{about}, one of which has no fixed size or holds no number: choose another "
            "environment"
        )
    numbers = num_numbers(observes, config.image)
    if COPIES * 4 * numbers > physical_memory():
        raise EnvironmentUnavailable(
            f"{about}: its observations of {numbers:,} numbers do not fit into memory; choose "
            "another environment, or a wrapper that observes less"
        )
    for space in (observes, actions):
        if empty := find_empty(space):
            raise EnvironmentUnavailable(
                f"{about}: nothing is in {empty}, whose bounds are not in order or no numbers"
            )


class Watched(Wrapper):
    """Send a heartbeat at every call of an environment."""

    def reset(self, **options):
        HEARTBEAT.beat(RESET)
        return self.env.reset(**options)

    def step(self, action):
        HEARTBEAT.beat(STEP)
        return self.env.step(action)

    def render(self):
        HEARTBEAT.beat(RENDER)
        return self.env.render()

    def close(self) -> None:
        HEARTBEAT.beat(CLOSE)
        self.env.close()


@contextmanager
def explained_errors(env_name: str) -> Iterator[None]:
    """Translate exceptions raised while an environment is made into errors that name the fix.

    Raises EnvironmentUnavailable, or WorkerError for what the environment's own code raises."""
    module, _, name = env_name.rpartition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as the one about newer versions
            yield
    except (PPOError, *RAISED_BY_SIGNALS):
        raise
    except gymnasium.error.UnregisteredEnv as error:
        known = [*gymnasium.registry]
        if module:
            known += dir(import_code(module))
        hint = suggest(name, known, "gymnasium.pprint_registry() lists all")
        raise EnvironmentUnavailable(f"--env_name={env_name} is unknown: {hint}") from error
    except BaseException as error:
        is_explained = isinstance(error, (gymnasium.error.Error, ImportError))
        if not is_explained and not re.search(UNSUITABLE, str(error)):
            raise worker_error(f"environment {env_name}", error) from error
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name and not module:
            hint = f": pip install {error.name}"
        raise EnvironmentUnavailable(
            f"--env_name={env_name} cannot be made: {error}{hint}"
        ) from error
