"""Find the run that a restarted torchrun continues."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.system.files import folder_name


def resume_if_begun(given: Mapping[str, str]) -> dict[str, str]:
    """Return the flags with run_dir, and with resume if this launch of torchrun has begun the run
    before: a rank was lost, or a machine was added. Without run_dir the folder has the launch's
    name in it. Raises ConfigError if the launch has no name, or for --seeds."""
    if given.get("seeds", "1") != "1":
        problem = f"--seeds={given['seeds']} is for one process"
        raise ConfigError(f"{problem}: leave it out, or leave out torchrun")
    if "resume" in given:
        return dict(given)
    launch = os.environ["TORCHELASTIC_RUN_ID"]
    if launch == "none":
        fix = "give the run a name by it, to be known by when it is started again"
        raise ConfigError(f"torchrun --rdzv_id=none: {fix}")
    folder = given.get("run_dir", "none")
    if folder == "none":
        name = given.get("name", given.get("env_name", Config.env_name))
        folder = f"runs/{folder_name(name)}-{launch}"
    flags = {**given, "run_dir": folder}
    with suppress(OSError, ValueError, AttributeError):
        if json.loads(Path(folder, "config.json").read_text()).get("launch") == launch:
            flags["resume"] = "auto"
    return flags
