"""The folder of a run: made once, never reused."""

import dataclasses
import importlib.metadata
import itertools
import json
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from ppo.config import Config, ConfigError

PACKAGES = ("torch", "gymnasium", "numpy", "box2d", "ale-py")


def create_run_folder(config: Config) -> Path:
    """Make the run's folder and write config.json: every resolved value, and what the run runs on.

    Raises ConfigError if the folder that the user chose holds anything already, or cannot be made.
    """
    if config.run_dir or config.name:
        folder = Path(config.run_dir or f"runs/{config.name}")
    else:
        name = f"{config.env_name}-s{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
        first = Path("runs", re.sub(r"[^\w.=+-]+", "-", name))
        others = (first.with_name(f"{first.name}-{count}") for count in itertools.count(2))
        folder = next(path for path in itertools.chain([first], others) if not path.exists())
    choose = f"choose another by --{'name' if config.name and not config.run_dir else 'run_dir'}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"the folder {folder} is not empty, and no run is overwritten: {choose}")
        versions = {name: importlib.metadata.version(name) for name in PACKAGES} | {"python": platform.python_version()}
        about = {"versions": versions, "git_commit": _git_commit()}
        write_json(folder / "config.json", {**dataclasses.asdict(config), **about})
    except OSError as error:
        raise ConfigError(f"the folder {folder} cannot be written to ({error.strerror}): {choose}") from error
    return folder


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def _git_commit() -> str | None:
    """The commit of the trainer's own source; None outside a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
