"""Train as the command line says."""

import gc
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ppo.commands import all_commands
from ppo.config.config import Config, folder_to_resume
from ppo.config.flags import Settings, parse_flags
from ppo.envs.isolation import ISOLATION
from ppo.errors import ConfigError
from ppo.system.files import folder_name, read_json
from ppo.system.process import die_with_launcher

LAUNCH = "TORCHELASTIC_RUN_ID"  # torchrun's --rdzv_id, the same after a restart
ABOUT = "Train PPO on a gymnasium environment, or run a command (its flags: ppo COMMAND --help):\n"


def train(arguments: Sequence[str]) -> None:
    """Train in this process, also as a rank of torchrun, or with --seeds in a process for each.

    Raises as configure, ppo.trainer.train and ppo.commands.seeds.train_seeds do.
    """
    if LAUNCH in os.environ:
        die_with_launcher()  # before the imports, which take seconds
        from ppo.system.distributed import join_ranks

        given, config, notes = join_ranks().broadcast_from_rank0(partial(configure, arguments))
    else:
        given, config, notes = configure(arguments)
    if config.seeds > 1:
        from ppo.commands.seeds import train_seeds

        gc.enable()
        ISOLATION.close()
        train_seeds(given, config)
    else:
        from ppo import trainer

        trainer.train(config, notes=notes)


def configure(arguments: Sequence[str]) -> tuple[Settings, Config, list[str]]:
    """Return the flags given, the config that they lead to, and notes for the user.

    Flags take precedence over the settings of a resumed run, or over the preset of a new one.
    Raises HelpShown for --help, CheckpointError if the run cannot be resumed, ConfigError,
    EnvironmentUnavailable, WorkerError.
    """
    lines = [f"  {name:10}{command.about}" for name, command in all_commands().items()]
    given = parse_flags(arguments, Config, about=ABOUT + "\n".join(lines))
    ISOLATION.start()
    from ppo.config.resolve import with_tuned  # heavy; the isolated process starts meanwhile

    if LAUNCH in os.environ:
        given = resume_if_begun(given)
    saved: Settings = {}
    resume = folder_to_resume(given)
    if resume:
        from ppo.policy.load import saved_settings  # heavy

        saved = saved_settings(resume, given)
        given = {**given, "resume": str(resume), "run_dir": "none"}
    config, tuned = with_tuned(given, saved)
    notes = []
    asked = {**saved, **given}.get("env_name", Config.env_name)
    if config.env_name != asked:
        notes.append(f"{asked} is now {config.env_name}")
    if tuned:
        values = " ".join(f"{name}={value}" for name, value in tuned.items())
        notes.append(f"tuned preset (turned off by --preset=none): {values}")
    return given, config, notes


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
    if read_json(Path(folder, "config.json"), {}).get("launch") == launch:
        flags["resume"] = "auto"
    return flags
