"""Read how a run was resumed, and the settings that it had last."""

from pathlib import Path
from typing import Any

from ppo.run.folder import EVENTS
from ppo.run.reader import CONFIG, RunRecord, misfit, read_run
from ppo.system.files import read_json_lines

RESUMED: Any = {"step": int, "differences": [str], "settings": ({}, None)}


def resumes_of(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a run's resumes, of which each has a step, differences and, but in
    files of earlier versions, settings."""
    events = read_json_lines(folder / EVENTS)
    return [x for x in events if x.get("kind") == "resumed" and not misfit(x, RESUMED)]


def read_latest(folder: Path) -> RunRecord:
    """Read a run with the settings of its last resume in place of those that it was begun with.
    Raises as read_run."""
    run = read_run(folder)
    for event in resumes_of(folder):
        config = {**run.config, **(event.get("settings") or {})}
        if not misfit(config, CONFIG) and config["env_name"].isprintable():
            run = run._replace(config=config)
    return run
