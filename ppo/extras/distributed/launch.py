"""What torchrun says to the processes that it starts, and what follows from it."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ppo.config.config import Config
from ppo.config.flags import Settings
from ppo.errors import ConfigError
from ppo.system import hardware
from ppo.system.files import folder_name, read_json
from ppo.system.process import die_with_parent

if TYPE_CHECKING:
    from ppo.components import Components
    from ppo.parts import Part
    from ppo.peers import Peers

LAUNCH = "TORCHELASTIC_RUN_ID"  # torchrun's --rdzv_id, the same after a restart


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


def check_rendezvous() -> None:
    """Raise ConfigError unless the environment says which rank this is, and where all meet."""
    rank, size, port = map(torchrun_number, ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    if rank >= size:
        raise launch_error(f"RANK={rank}, which is not below WORLD_SIZE={size}")
    if port >= 2**16:
        raise launch_error(f"MASTER_PORT={port}, which is not a port")
    if not os.environ.get("MASTER_ADDR"):
        raise launch_error("no MASTER_ADDR")


def torchrun_number(name: str, default: int | None = None, low: int = 0) -> int:
    """Return an integer that torchrun sets in the environment, or the default without it.

    Raises ConfigError if it is missing and has no default, or is not an integer >= low."""
    text = os.environ.get(name, "" if default is None else str(default))
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < low:
        raise launch_error(f"{name}={text}, not an integer >= {low}")
    return int(text)


def launch_error(problem: str) -> ConfigError:
    """Say what is wrong with the variables by which torchrun tells each process its rank."""
    return ConfigError(
        f"the environment has {problem}: start the ranks by torchrun, which sets it, or unset "
        "WORLD_SIZE, LOCAL_WORLD_SIZE and TORCHELASTIC_RUN_ID for a single process"
    )


def die_with_launcher() -> None:
    """Do what die_with_parent does, for a process that torchrun has started: torchrun does not say
    which process it is, but torch is loaded there, and not where orphans are inherited."""
    parent = os.getppid()
    die_with_parent(parent)
    try:
        is_launcher = b"libtorch" in Path(f"/proc/{parent}/maps").read_bytes()
    except FileNotFoundError:  # on other systems, or the parent has just ended
        return
    except OSError:  # it belongs to somebody else
        is_launcher = False
    if not is_launcher:
        os._exit(1)
