"""Read the runs that a command names, and group those that differ only by their seed."""

import json
from collections.abc import Iterable, Sequence
from os.path import lexists
from pathlib import Path
from typing import Any, NamedTuple

from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.extras.tools.result import alike
from ppo.extras.tools.resumes import read_latest
from ppo.run.reader import METRICS, RunRecord, label_of, run_folder
from ppo.system.output import printable, show

RUNS = "Folders of runs, or of several such as those of --seeds, or their names in runs/."  # a flag
NUM_NAMED = 3  # settings in a label: more only where these are not enough to tell groups apart
MAX_VALUE = 40  # characters of one


class Group(NamedTuple):
    """Runs whose settings differ only by their seed, and the label of their curve."""

    label: str
    runs: list[RunRecord]


def read_groups(names: Iterable[str]) -> list[Group]:
    """Read runs by their folders, or their names in runs/, and group them.

    A folder of several runs, such as one of --seeds, stands for all of them; no others join their
    group. Raises ConfigError for a folder without a run that has finished an iteration; within a
    folder of several, such a run is left out with a warning."""
    found: dict[Path, tuple[str, RunRecord]] = {}
    for name in names:
        folder = run_folder(name)
        paths = runs_within(folder)
        runs = [*_readable(paths)] if paths else [read_latest(folder)]
        if not runs:
            raise ConfigError(f"{folder}: no run in it has finished an iteration: give another")
        for run in runs:
            found.setdefault(run.folder.resolve(), (label_of(folder) if paths else "", run))
    return _grouped(found.values())


def group_runs(runs: Iterable[RunRecord]) -> list[Group]:
    """Group runs that were named one by one."""
    return _grouped(("", run) for run in runs)


def runs_within(folder: Path) -> list[Path]:
    """Return the folders of the runs in a folder, at any depth; [] if it is that of a run."""
    if lexists(folder / "config.json") or lexists(folder / METRICS):
        return []
    found = (path.parent for path in folder.rglob(METRICS))
    runs = [path for path in found if lexists(path / "config.json")]
    return sorted(runs, key=lambda path: (len(str(path)), path))  # s2 before s10


def all_runs(groups: Iterable[Group]) -> list[RunRecord]:
    """Return the runs of all groups."""
    return [run for group in groups for run in group.runs]


def names_of(runs: Sequence[RunRecord]) -> list[str]:
    """Return the names of runs, which are those of their folders; whole paths if two are alike."""
    names = [run.name for run in runs]
    if len({*names}) < len(names):
        return [printable(str(run.folder)) for run in runs]
    return names


def compared(run: RunRecord) -> dict[str, Any]:
    """Return the settings of a run in which the runs of a group are alike: all but the seed, the
    number of workers and flags of scope "run"; versions and commits may differ, too."""
    ignored = {
        "auto",
        "seed",
        "run_id",
        "launch",
        "versions",
        "git_commit",
        "num_workers",
        *Config.names(scope="run"),
    }
    return {name: alike(value) for name, value in run.config.items() if name not in ignored}


def differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of settings that are not the same in all runs."""
    names = dict.fromkeys(name for one in settings for name in one)
    return [x for x in names if any(one.get(x) != settings[0].get(x) for one in settings)]


def environment_of(run: RunRecord) -> str:
    """Return the name of a run's environment, of a class or function without the mark <> that it
    has in files."""
    return run.config["env_name"].strip("<>")


def _readable(paths: Iterable[Path]) -> Iterable[RunRecord]:
    """Yield runs; warn of those that cannot be read."""
    for path in paths:
        try:
            yield read_latest(path)
        except ConfigError as error:
            show(f"warning: {error}; it is left out")


def _grouped(runs: Iterable[tuple[str, RunRecord]]) -> list[Group]:
    """Group runs, each with the name of the folder of several that it was named by, or ""."""
    found: dict[tuple[str, str], list[RunRecord]] = {}
    for folder, run in runs:
        key = (folder, json.dumps(compared(run), sort_keys=True))
        found.setdefault(key, []).append(run)
    folders = [folder for folder, _ in found]
    labels = _labels(folders, [*found.values()])
    return [Group(*pair) for pair in zip(labels, found.values(), strict=True)]


def _labels(folders: Sequence[str], groups: Sequence[list[RunRecord]]) -> list[str]:
    """Return a label for each group: the name of a single run; of several, that of their folder,
    and what differs between the groups' settings."""
    settings = [compared(runs[0]) for runs in groups]
    differences = differing(settings)
    names = names_of([runs[0] for runs in groups])
    labels: list[str] = []
    for count in range(min(NUM_NAMED, len(differences)), len(differences) + 1):
        labels = []
        for folder, runs, own, name in zip(folders, groups, settings, names, strict=True):
            shown = [_setting(runs[0], x) for x in differences[:count] if x in own]
            several = [folder] if folder and len(groups) > 1 else []
            text = ", ".join([*several, *shown]) or environment_of(runs[0])
            many = f"{text}: IQM of {len(runs)} seeds, 95 % interval"
            labels.append(name if len(runs) == 1 else many)
        if len({*labels}) == len(labels):
            break
    return labels


def _setting(run: RunRecord, name: str) -> str:
    """Return a setting of a run for a label."""
    if name == "env_name":
        return environment_of(run)
    return printable(f"{name}={run.config[name]}"[: len(name) + MAX_VALUE])
