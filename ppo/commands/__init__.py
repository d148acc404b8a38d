"""Commands of the command line, imported when they are run.

A command is a subclass of Flags, of which an instance is called; some, such as train, are functions
of the command line's arguments instead.
"""

from ppo.extensions import Command, names_of

CORE = {
    "train": Command(
        "ppo.commands.train:train", "Train a policy (the default command).", takes_environment=True
    ),
    "evaluate": Command(
        "ppo.commands.evaluate:Evaluate",
        "Evaluate saved policies, and print their returns.",
    ),
}


def all_commands() -> dict[str, Command]:
    """Return the commands of the trainer and of its extensions, by name."""
    return CORE | names_of("commands")
