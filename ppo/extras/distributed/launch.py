"""Train in the processes that torchrun has started."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ppo.config.config import Config
from ppo.config.flags import Settings
from ppo.errors import ConfigError
from ppo.extras.distributed.torchrun import (
    LAUNCH,
    check_rendezvous,
    die_with_launcher,
    torchrun_number,
)
from ppo.system import hardware
from ppo.system.files import folder_name, read_json

if TYPE_CHECKING:
    from ppo.components import Components
    from ppo.parts import Part
    from ppo.peers import Peers


def complete(given: Settings) -> Settings:
    """Return the flags, extended so that a run that torchrun restarts resumes from a checkpoint.

    Without --run_dir the folder is named after torchrun's --rdzv_id. Raises ConfigError if that is
    "none", or for more than one of --seeds.
    """
    launch = os.environ.get(LAUNCH)
    if not launch:
        return given
    if given.get("seeds", "1") != "1":
        raise ConfigError(
            f"--seeds={given['seeds']} is for one process: leave it out, or leave out torchrun"
        )
    if "resume" in given:
        return given
    if launch == "none":
        raise ConfigError(
            "torchrun --rdzv_id=none: give the run a name by it, so that it is known when it is "
            "started again"
        )
    folder = given.get("run_dir", "none")
    if folder == "none":
        name = given.get("name") or given.get("env_name") or Config.env_name
        folder = f"runs/{folder_name(name)}-{launch}"
    flags = {**given, "run_dir": folder}
    if read_json(Path(folder, "config.json")).get("launch") == launch:
        flags["resume"] = "auto"
    return flags


def join() -> "Peers | None":
    """Join the other ranks; return None in a process that torchrun has not started.

    Raises ConfigError if the environment does not describe them, RankLost if they do not all
    arrive."""
    hardware.sharing = torchrun_number("LOCAL_WORLD_SIZE", 1, low=1)
    size = torchrun_number("WORLD_SIZE", 1, low=1)
    if LAUNCH in os.environ:
        die_with_launcher()  # before the imports, which take seconds
    elif size == 1:
        return None
    from ppo.extras.distributed.ranks import Launched, Ranks

    if size == 1:
        return Launched()
    check_rendezvous()
    return Ranks()


def make_parts(parts: "Components") -> "dict[str, Part]":
    """Return what takes part in the learning of several ranks, after all have compared their
    settings. Raises as check_settings."""
    if parts.peers.is_alone:
        return {}
    from ppo.extras.distributed.ranks import SameWeights, check_settings

    check_settings(parts)
    return {"ranks": SameWeights(parts)}
