"""What torchrun says to the processes that it starts, by environment variables."""

import os
import re
from pathlib import Path

from ppo.errors import ConfigError
from ppo.system.process import die_with_parent

LAUNCH = "TORCHELASTIC_RUN_ID"  # torchrun's --rdzv_id, the same after a restart


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
