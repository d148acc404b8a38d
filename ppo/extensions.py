"""What plugs into the trainer: the extras of ppo/extras, and packages with an entry point."""

import os
import sys
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from multiprocessing import parent_process
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ppo.errors import describe
from ppo.system.files import read_bytes
from ppo.system.output import show

if TYPE_CHECKING:
    from ppo.config.config import Config

EXTRAS = Path(__file__).with_name("extras")
GROUP = "ppo.extras"  # of entry points
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Command(NamedTuple):
    """A command: its import path, a line for --help, and whether its first argument may be an
    environment."""

    path: str
    about: str
    takes_environment: bool = False


class Form(NamedTuple):
    """A form in which environments come other than as one gymnasium.Env each; import paths.

    suits: from an EnvSpec and what it has made, None before it has made anything: whether they come
    in this form; look: like ppo.envs.probe.look_at, whose Spaces name the form; worker: a
    subclass of ppo.envs.worker.Worker; make_env: like ppo.envs.make.make_env, one that is stepped
    by itself; evaluate: like ppo.policy.evaluation.evaluate_envs."""

    suits: str
    look: str
    worker: str
    make_env: str
    evaluate: str


class Column(NamedTuple):
    """A table (T, N, width) of float32 in the rollout, which workers fill; import paths.

    flag: the one that asks for it; width: from a Config to how many numbers it keeps of each step,
    0 if it is not asked for; reader: from a gymnasium.Env, made with the extension's wrap, to what
    returns the numbers (width,) of its last step."""

    flag: str
    width: str
    reader: str


class Model(NamedTuple):
    """A model by name: policy and value heads on the features of a trunk.

    make_trunk: import path of a function or class that makes a ppo.models.actor_critic.Trunk from
    (observation_space, config, size). hidden_size: the default of its size, which for the mlp may
    also be a string as --policy_layers takes it. reads: "vectors", "images" (or images and vectors)
    or "any". model: import path of a class like ppo.models.actor_critic.FeedForward; shares_trunk:
    whether its policy and value always share the trunk."""

    make_trunk: str
    hidden_size: int
    reads: str
    model: str = "ppo.models.actor_critic:FeedForward"
    shares_trunk: bool = False


class Extension(NamedTuple):
    """What an extension adds, by import paths, so that nothing is imported until it is used."""

    # Subclasses of ppo.config.flags.Flags, whose flags Config has: a module with them imports
    # nothing that needs Config.
    flags: tuple[str, ...] = ()
    # Those of them that commands have, too, which use environments without training in them.
    play_flags: tuple[str, ...] = ()
    # Further flags of ppo evaluate, each of which is an option of Policy.evaluate, too: subclasses
    # of Flags whose spectator() is a ppo.policy.spectators.Spectator, or None.
    spectators: tuple[str, ...] = ()
    # From the flags of a command line, as texts: the same, with what else follows from how this
    # process was started.
    complete: str = ""
    # Its ppo.peers.Peers after joining them, or None if this process learns alone.
    peers: str = ""
    # Its ppo.guard.Guard, or None.
    guard: str = ""
    # From the flags that are given and their ppo.config.settings.Environment: values of flags that
    # are not given, and what the user is told that they are.
    defaults: str = ""
    # From a ppo.config.config.Config and its Environment: what "auto" stands for in the extension's
    # own flags, to be noted with the run.
    auto: str = ""
    # From a Config: what "auto" stands for in it, by flag, where that is another value than in the
    # core.
    resolve: str = ""
    # From the flags of a command line and the settings that they lead to: whether it has done what
    # they ask for, so that this process need not train.
    launch: str = ""
    # Further forms of environments, by their names in ppo.envs.probe.Spaces.
    forms: Mapping[str, Form] = NOTHING
    # From a Config and a gymnasium.Env with the user's wrappers: the same, or a
    # ppo.envs.inspection.Inspector around it.
    inspect: str = ""
    # Further kinds of faults that environments may report, by name: what one has done, for
    # "environment N ...".
    faults: Mapping[str, str] = NOTHING
    # What is wrong here with wrappers that others have made, and what to give instead, by their
    # import paths: the end of a sentence that begins with the wrapper's name.
    about_wrappers: Mapping[str, str] = NOTHING
    # From a Config and a gymnasium.Env that it makes: the same, or a wrapper around it, which sees
    # each step before actions are repeated.
    wrap: str = ""
    # Further tables of the rollout, by name.
    columns: Mapping[str, Column] = NOTHING
    # What makes environments, from an id and keyword arguments, by the beginning of such ids.
    makers: Mapping[str, str] = NOTHING
    # From a Config and the names of an observation's vectors: those to standardise.
    standardized: str = ""
    # Further networks, by their names for --model.
    models: Mapping[str, Model] = NOTHING
    # From a Config, "policy" or "value", and what makes a ppo.models.actor_critic.Trunk of an
    # observation space: the same, or what makes another.
    trunk: str = ""
    # From a number of features, an action space and a Config: a ppo.models.distributions.PolicyHead
    # for continuous actions, or None.
    head: str = ""
    # From a number of features and a Config: a torch.nn.Linear from features (..., F) to values
    # (..., 1), or None.
    value_head: str = ""
    # From ppo.components.Components, whose model and learner are made: more parts of learning, each
    # a ppo.parts.Part, by name. They may add terms to the learner's loss.
    parts: str = ""
    # From a ppo.envs.worker.Worker: its ppo.envs.worker.WorkerPart, by name; a part of learning may
    # call it (see ppo.envs.pool.WorkerPool.call), and reads what it reports.
    worker_parts: Mapping[str, str] = NOTHING
    # From a Learner with all its terms: its ppo.algorithm.backend.Backend, or None.
    backend: str = ""
    # From a model, its Config, its Spaces and a device: what makes an actor of weights (P,) there,
    # in any process, one like ppo.models.actor.Actor; or None. It is pickled.
    actor: str = ""
    # From a policy's ppo.policy.reader.Reader: the same, or one around it.
    reader: str = ""
    # From the Components of a new run, before it begins: notes for the user.
    prepare: str = ""
    # From the Components of a run: its callbacks.
    callbacks: str = ""
    # Subclasses of ppo.Logger, by their names for --logger.
    loggers: Mapping[str, str] = NOTHING
    commands: Mapping[str, Command] = NOTHING
    # What to give instead of commands that it had once, by their names.
    gone_commands: Mapping[str, str] = NOTHING
    # What `from ppo import NAME` imports.
    exports: Mapping[str, str] = NOTHING
    # The names of extensions that do what they do before this one.
    after: tuple[str, ...] = ()
    # And of those that it imports from: without them it is left out.
    needs: tuple[str, ...] = ()


@cache
def extensions() -> dict[str, Extension]:
    """Return all extensions by name: the extras that are there, then those of installed packages,
    of which none is in the working folder. One that cannot be imported is left out with a
    warning."""
    names = sorted(path.parent.name for path in EXTRAS.glob("*/__init__.py"))
    paths = {name: f"{GROUP}.{name}:EXTENSION" for name in names}
    paths |= _entry_points()
    loaded: dict[str, Extension] = {}
    for name, path in paths.items():
        try:
            loaded[name] = resolve_name(path)
        except Exception as error:
            _warn(f"the extension {name} is left out: {describe(error)}")
    order = TopologicalSorter({name: (*x.after, *x.needs) for name, x in loaded.items()})
    found: dict[str, Extension] = {}
    for name in filter(loaded.__contains__, order.static_order()):
        if missing := {*loaded[name].needs} - found.keys():
            _warn(f"the extension {name} is left out: it needs {', '.join(missing)}")
        else:
            found[name] = loaded[name]
    return found


def _entry_points() -> dict[str, str]:
    """Return the import paths of the extensions of installed packages by name.

    importlib.metadata takes as long to import as all flags: it reads only a package whose file has
    the group. A file that cannot be read is left out with a warning."""
    here = os.path.realpath(os.curdir)
    installed = [Path(folder) for folder in sys.path if os.path.realpath(folder) != here]
    files = [file for folder in installed for file in folder.glob("*-info/entry_points.txt")]
    found: dict[str, str] = {}
    for file in files:
        try:
            if GROUP.encode() in read_bytes(file):
                from importlib.metadata import PathDistribution

                points = PathDistribution(file.parent).entry_points.select(group=GROUP)
                found |= {point.name: point.value for point in points}
        except Exception as error:
            _warn(f"the extensions of {file.parent.stem} are left out: {describe(error)}")
    return found


def _warn(message: str) -> None:
    """Show a warning, once for all processes."""
    if parent_process() is None:
        show(f"warning: {message}")


def functions_of(field: str) -> list[Any]:
    """Import what all extensions name in one of their fields, of one path or several."""
    found = (getattr(extension, field) for extension in extensions().values())
    paths = (path for one in found for path in ([one] if isinstance(one, str) else one))
    return [resolve_name(path) for path in paths if path]


def names_of(field: str) -> dict[str, Any]:
    """Return what all extensions have by name in one of their fields."""
    return {
        name: value
        for extension in extensions().values()
        for name, value in getattr(extension, field).items()
    }


def added_columns(config: "Config") -> dict[str, Column]:
    """Return the tables that a config's flags ask extensions for."""
    columns = names_of("columns").items()
    return {name: column for name, column in columns if resolve_name(column.width)(config)}
