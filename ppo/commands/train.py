"""Train as the command line says."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ppo.commands import all_commands
from ppo.config.config import Config
from ppo.config.flags import Settings, parse_flags
from ppo.extensions import functions_of
from ppo.guard import guard
from ppo.peers import join_peers

if TYPE_CHECKING:
    from ppo.config.settings import RunSettings

ABOUT = "Train PPO on ENV, the --env_name, or run a command (ppo COMMAND --help):\n"


def train(arguments: Sequence[str]) -> None:
    """Train in this process, with those that it learns with, unless an extension does it elsewhere.

    Raises as configure, ppo.trainer.run and extensions do.
    """
    with join_peers() as peers:
        given, settings = peers.call_in_first(partial(configure, arguments))
        if any(launch(given, settings) for launch in functions_of("launch")):
            return
        from ppo import trainer

        trainer.run(lambda: settings, peers)


def configure(arguments: Sequence[str]) -> tuple[Settings, "RunSettings"]:
    """Return the flags that a command line gives, and the settings that they lead to.

    Flags take precedence over the settings of a resumed run, or over the preset of a new one.
    Raises HelpShown for --help, and as ppo.run.trusted_settings.run_settings does."""
    lines = [f"  {name:10}{command.about}" for name, command in all_commands().items()]
    given = parse_flags(arguments, Config, about=ABOUT + "\n".join(lines))
    guard().start()
    from ppo.run.trusted_settings import run_settings  # heavy; the guard gets ready meanwhile

    for complete in functions_of("complete"):
        given = complete(given)
    settings = run_settings(given)
    if settings.config.is_resumed:
        given = {**given, "resume": settings.config.resume, "run_dir": "none"}
    return given, settings
