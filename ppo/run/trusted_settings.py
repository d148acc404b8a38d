"""Settings of a saved run, whose files are untrusted: they name nothing that is imported unless
the user repeats it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ppo.config.config import BEFORE_FLAGS, Config, as_texts, import_paths, is_function
from ppo.config.flags import Settings, check_values, pasted
from ppo.config.gone import without_gone
from ppo.config.settings import RunSettings, settings_of
from ppo.envs.env_factories import EnvObject
from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.probe import Spaces
from ppo.envs.spaces import scaled_bounds
from ppo.errors import CheckpointError, ConfigError
from ppo.run.checkpoint import load_newest, newest_first
from ppo.run.reader import read_optional, run_folder
from ppo.system.output import show
from ppo.system.state_dict import State


def run_settings(flags: Settings | Config) -> RunSettings:
    """Return the settings of a new run, or of the run that --resume names, with its checkpoint.

    flags: as settings_of takes them; those of a run to resume must repeat import paths, classes and
    functions. A Config replaces all settings of that run. Raises as settings_of does, and
    CheckpointError if there is no intact checkpoint, or if its settings cannot be used."""
    folder = folder_to_resume(vars(flags) if isinstance(flags, Config) else flags)
    if not folder:
        return settings_of(flags)
    here: Settings = {"resume": str(folder), "run_dir": None}
    if isinstance(flags, Config):
        return settings_of(replace(flags, **here))
    flags = {**flags, **here}
    path, state = load_newest(folder / "checkpoints", lambda damage: None)
    # A schedule that is given anew counts, whatever the run had: a file holds no function.
    plain = Config.names(schedules=())
    held = [name for name in Config.names() if name in plain or name not in flags]
    saved = checked_settings(path, state, held, to_resume=True)
    watching = _watching(folder, flags)
    repeated = {name: flags.get(name) for name in Config.names(imports=True)}
    if problem := untrusted({path: saved, folder / "config.json": watching}, repeated):
        raise CheckpointError(problem)
    saved |= watching
    try:
        settings = settings_of(flags, saved)
    except ValueError:
        objects = {name: x for name, x in flags.items() if isinstance(x, EnvObject)}
        with as_checkpoint_error(path):  # if it is not the flags that are wrong
            settings_of(objects, saved)
        raise
    return replace(settings, checkpoint=(path, state))


def folder_to_resume(given: Settings) -> Path | None:
    """Return the folder of the run to resume, or None to begin a new one.

    given: flags, as texts. --resume=auto is --run_dir, if that has a checkpoint. Raises ConfigError
    if there is no such folder, or if --resume and --run_dir contradict each other; OSError if it
    cannot be looked into.
    """
    name = str(given.get("resume"))
    run_dir = given.get("run_dir")
    if name == "auto":
        if not run_dir:
            raise ConfigError(
                "--resume=auto: give --run_dir as well, the folder of the run to start or to resume"
            )
        if newest_first(Path(run_dir) / "checkpoints"):
            return Path(run_dir)
        return None
    if name.lower() == "none":
        return None
    if run_dir not in (None, name):
        raise ConfigError(
            f"--run_dir={run_dir}: leave it out, the run is resumed in --resume={name}"
        )
    folder = run_folder(name)
    if not folder.is_dir():
        raise ConfigError(f"--resume={name}: there is no such folder; give that of a run")
    runs = sorted(path.parent.name for path in folder.glob("*/checkpoints"))
    if runs and not (folder / "checkpoints").exists():
        raise ConfigError(f"--resume={name} has runs in it: give one of them, {', '.join(runs)}")
    return folder


def _watching(folder: Path, flags: Settings) -> Settings:
    """Return how a run is watched, from its config.json and but for flags: with a warning nothing,
    if that is not valid."""
    path = folder / "config.json"
    saved = read_optional(path, dict, {})
    names = {*Config.names(scope="run")} - {"name", "run_dir", "resume"} - flags.keys()
    try:
        return check_values(Config, {name: saved[name] for name in names & saved.keys()})
    except ConfigError as error:
        show(f"warning: {path} is left out: {error}")
        return {}


def checked_settings(
    path: Path, state: State, needed: Sequence[str], to_resume: bool = False
) -> Settings:
    """Return the needed settings of a checkpoint's run, checked as flags are. See untrusted.

    Raises CheckpointError for a setting that is not accepted or was a function and, to_resume, for
    one of an extension that is not here, without which a policy acts all the same.
    """
    saved = state.get("config")
    if not isinstance(saved, dict):
        raise CheckpointError(f"{path} has no config: give another")
    saved = {**BEFORE_FLAGS, **without_gone(saved)}
    unknown = {name for name in saved.keys() - {*Config.names()} if saved[name]}
    if to_resume and unknown:
        name = min(unknown)
        raise CheckpointError(
            f"{path} was made with {name}={saved[name]}, a flag of an extension that is not here: "
            "install it, or give another"
        )
    for name in sorted(saved.keys() & needed):
        if is_function(name, saved[name]):
            raise CheckpointError(
                f"{path} was made with the function {saved[name]} as {name}, which no file holds: "
                f"give it again, by train(..., {name}=...), or a number, by --{name}"
            )
    try:
        return check_values(Config, {name: saved[name] for name in saved.keys() & needed})
    except ConfigError as error:
        raise CheckpointError(
            f"{path} has settings that this version does not accept ({error}): give another"
        ) from error


def check_scale(flag: str, saved: Settings, config: Config, spaces: Spaces) -> None:
    """Raise ConfigError if a policy with the saved settings, to which a flag has led, would act in
    other numbers by a run's config than it was trained in."""
    saved = {**Config.defaults(), **BEFORE_FLAGS, **saved}
    has_scale = saved["scale_actions"]
    is_squashed = config.squash_actions or saved["squash_actions"]
    differ = has_scale != config.scale_actions and not is_squashed
    if differ and scaled_bounds(spaces.actions):
        raise ConfigError(f"{flag} was trained with --scale_actions={has_scale}: give the same")


def untrusted(files: Mapping[Path, Settings], repeated: Settings) -> str:
    """Say all at once which import paths in the settings of files the user has not repeated, and
    which class or function has not been given again, with the flags that do both; "" if there is
    none.

    repeated: the user's own values of settings that may import code; an import path in a file is
    trusted only if the user has given the same."""
    said = []
    importing = []
    flags: Settings = {}
    for path, settings in files.items():
        missing = []
        for name, given in repeated.items():
            wanted = import_paths(settings, name)
            unknown = [text for text in wanted if ":" in text and not _is_given(name, text, given)]
            if unknown:  # all texts of the flag, since those that are given replace the saved ones
                flags[name] = settings[name]
            elif wanted and not given:
                python = "load_policy(path, env), train(env, ...)"
                if name != "env_name":
                    python = f"train(..., {name}=...)"
                said.append(
                    f"{path} is of the class or function {wanted[0]}: give it again, by {python} "
                    f"or --{name}=module:Name"
                )
            missing += unknown
        if missing:
            importing.append(f"{path} would import {', '.join(missing)}")
    if importing:
        said.append(f"{', '.join(importing)}: if you trust it, repeat {pasted(**flags)}")
    return "; ".join(said)


def _is_given(name: str, wanted: str, given: Any) -> bool:
    """Return whether an import path is among the user's own values of a setting."""
    is_same = name == "env_name" and given and may_be_same(wanted, str(given))
    return wanted in as_texts(given) or isinstance(given, EnvObject) or bool(is_same)


def may_be_same(saved: str, given: str) -> bool:
    """Return whether an environment that was saved without its module is given with it, or the
    other way round: Bar-v0 and module:Bar-v0, or <Reach> and file.py:Reach."""
    before, _, name = saved.rpartition(":")
    module, _, given_name = given.rpartition(":")
    return not (before and module) and name.strip("<>") == given_name.strip("<>")


@contextmanager
def as_checkpoint_error(path: Path) -> Iterator[None]:
    """Turn a ValueError that a checkpoint's settings or tensors cause into a CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except EnvironmentUnavailable as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from error
    except ValueError as error:
        raise CheckpointError(
            f"{path} is of another network or environment ({error}): give another"
        ) from error
