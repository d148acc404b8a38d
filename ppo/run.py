"""The folder of a run: made once, never reused."""

import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

from ppo.config import Config, ConfigError

PACKAGES = {"torch", "gymnasium", "numpy", "box2d", "box2d-py", "ale-py"}


def create_run_folder(config: Config) -> Path:
    """Make the run's folder and write config.json: every resolved value, and what the run runs on. Raises ConfigError
    if the folder holds anything already, or cannot be made."""
    default = f"{config.env_name}-s{config.seed}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    name = re.sub(r"[^\w.=+-]+", "-", config.name or default)
    folder = Path(config.run_dir or f"runs/{name}")
    choose = f"choose another by --{'name' if config.name and not config.run_dir else 'run_dir'}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"the folder {folder} is not empty, and no run is overwritten: {choose}")
        installed = {package.name.lower(): package.version for package in importlib.metadata.distributions()}
        versions = {name: installed[name] for name in sorted(PACKAGES & installed.keys())}
        about = {"versions": {"python": platform.python_version(), **versions}, "git_commit": _git_commit()}
        write_json(folder / "config.json", {**config.__getstate__(), **about})
    except OSError as error:
        raise ConfigError(f"the folder {folder} cannot be written to ({error.strerror}): {choose}") from error
    return folder


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def _git_commit() -> str | None:
    """The commit of the trainer's own source; None outside a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    installed = shutil.which("git") is not None
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None if installed else None
