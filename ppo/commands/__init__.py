"""Commands of the command line, imported when they are run.

A command is a subclass of Flags, of which an instance is called; train and tune are functions of
the command line's arguments instead.
"""

from contextlib import suppress
from pkgutil import resolve_name
from typing import NamedTuple


class Command(NamedTuple):
    """A command: its import path, a line for --help, and whether its first argument may be an
    environment."""

    path: str
    about: str
    takes_environment: bool = False


CORE = {
    "train": Command(
        "ppo.commands.train:train", "Train a policy (the default command).", takes_environment=True
    ),
    "evaluate": Command(
        "ppo.commands.evaluate:Evaluate",
        "Evaluate saved policies, and print their returns.",
    ),
    "set": Command("ppo.commands.set:Set", "Change settings of a run while it trains."),
}


def all_commands() -> dict[str, Command]:
    """Return the commands of the trainer, and those of ppo.tools, which it can do without."""
    with suppress(ImportError):
        return CORE | resolve_name("ppo.tools:COMMANDS")
    return CORE
