"""Train as the command line says."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ppo.commands import all_commands
from ppo.config.config import Config
from ppo.config.flags import Settings, parse_flags
from ppo.envs.isolation import ISOLATION
from ppo.errors import ConfigError
from ppo.extensions import functions_of
from ppo.system.files import folder_name, read_json
from ppo.system.process import die_with_launcher

if TYPE_CHECKING:
    from ppo.config.settings import RunSettings

LAUNCH = "TORCHELASTIC_RUN_ID"  # torchrun's --rdzv_id, the same after a restart
ABOUT = "Train PPO on a gymnasium environment, or run a command (ppo COMMAND --help):\n"


def train(arguments: Sequence[str]) -> None:
    """Train in this process, also as a rank of torchrun, unless an extension does it elsewhere.

    Raises as configure, ppo.trainer.run and the extension do.
    """
    if LAUNCH in os.environ:
        die_with_launcher()  # before the imports, which take seconds
        from ppo.config.settings import settings_of
        from ppo.system.distributed import join_ranks

        ranks = join_ranks()
        given, settings = ranks.broadcast_from_rank0(partial(configure, arguments))
        if ranks.rank:  # with a device and cores of its own
            settings = settings_of(settings.given)
    else:
        given, settings = configure(arguments)
    if any(launch(given, settings) for launch in functions_of("launch")):
        return
    from ppo import trainer

    trainer.run(lambda: settings)


def configure(arguments: Sequence[str]) -> tuple[Settings, "RunSettings"]:
    """Return the flags that a command line gives, and the settings that they lead to.

    Flags take precedence over the settings of a resumed run, or over the preset of a new one.
    Raises HelpShown for --help, and as ppo.run.saved.run_settings does."""
    lines = [f"  {name:10}{command.about}" for name, command in all_commands().items()]
    given = parse_flags(arguments, Config, about=ABOUT + "\n".join(lines))
    ISOLATION.start()
    from ppo.run.saved import run_settings  # heavy; the isolated process starts meanwhile

    if LAUNCH in os.environ:
        given = resume_if_begun(given)
    settings = run_settings(given)
    if settings.config.is_resumed:
        given = {**given, "resume": settings.config.resume, "run_dir": "none"}
    return given, settings


def resume_if_begun(given: Settings) -> Settings:
    """Return the flags, extended so that a run that torchrun restarts resumes from a checkpoint.

    Without --run_dir the folder is named after torchrun's --rdzv_id. Raises ConfigError if that is
    "none", or for more than one of --seeds.
    """
    if given.get("seeds", "1") != "1":
        raise ConfigError(
            f"--seeds={given['seeds']} is for one process: leave it out, or leave out torchrun"
        )
    if "resume" in given:
        return given
    launch = os.environ[LAUNCH]
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
