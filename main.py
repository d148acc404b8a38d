"""Train PPO on a gymnasium environment: python main.py --env_name=LunarLander-v2 --model=mlp

Worker processes import this file, so what is heavy is imported where it is used."""

import difflib
import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

if __name__ in ("__main__", "__mp_main__"):  # the trainer, or one of its workers
    gc.disable()  # until all that stays is made: looking for garbage among it takes a third of the start
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for numpy, whose matrices are small

COMMANDS = ("check", "evaluate", "export", "plot", "render", "report")
DEBUG = {"--debug", "--debug=1", "--debug=true", "--debug=True"}


def main(arguments: Sequence[str]) -> int:
    """Run a command line. Returns the exit code: 0 done, 1 failed, 2 bad command, 3 unusable checkpoint, 4 folder in
    use, 130 or 143 after a signal."""
    from ppo.envs.errors import EnvironmentUnavailable, WorkerError
    from ppo.errors import ConfigError
    from ppo.models.errors import ModelMismatch

    try:
        command, *rest = (
            arguments if arguments and not arguments[0].startswith("-") else ("train", *arguments)
        )
        if command == "train":
            train(rest)
        else:
            use(command, rest)
        return 0
    except (ConfigError, EnvironmentUnavailable, ModelMismatch) as error:
        message, exit_code, is_reported = (
            " ".join(str(error).split()),
            2,
            hasattr(error, "is_reported"),
        )
    except KeyboardInterrupt:
        message, exit_code, is_reported = "interrupted: stopped at once", 130, False
    except Exception as error:
        if DEBUG & set(arguments) and not hasattr(error, "exit_code"):
            raise
        message, *details = (
            error.args if isinstance(error, WorkerError) else [str(error) or type(error).__name__]
        )
        print(*details, sep="\n", end="", file=sys.stderr)
        exit_code, is_reported = getattr(error, "exit_code", 1), hasattr(error, "is_reported")
    if not is_reported:  # by the first rank
        print(f"error: {message}", file=sys.stderr)
    return exit_code


def train(arguments: Sequence[str]) -> None:
    """Train by a command line."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from ppo.system.distributed import join_ranks

        given, config, notes = join_ranks().broadcast_from_rank0(partial(configure, arguments))
    else:
        given, config, notes = configure(arguments)
    if config.seeds > 1:
        from ppo.commands.seeds import train_seeds

        gc.enable()
        train_seeds(given, config)
    else:
        from ppo.trainer import train

        train(config, notes)


def configure(arguments: Sequence[str]) -> tuple[dict[str, str], Any, list[str]]:
    """The flags of a command line, the settings that they come to, and what to tell the user: what is given goes before
    what a resumed run was begun with, and that before presets."""
    from ppo.config.config import Config, folder_to_resume, load_preset
    from ppo.config.flags import parse_flags
    from ppo.envs.make import canonical_id, family_of

    given = parse_flags(arguments, Config)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from ppo.commands.resume import resume_if_begun

        given = resume_if_begun(given)
    saved = {}
    if resume := folder_to_resume(given):
        from ppo.run.checkpoint import saved_settings

        saved = saved_settings(resume, given)
        given = {**given, "resume": str(resume), "run_dir": "none"}
    asked = given.get("env_name", saved.get("env_name", Config.env_name))
    env_name = canonical_id(asked)
    env_kwargs = Config(
        env_kwargs=given.get("env_kwargs", saved.get("env_kwargs", Config.env_kwargs))
    ).env_kwargs
    kind = family_of(env_name, env_kwargs)
    preset = {} if saved else load_preset(given.get("preset", Config.preset), env_name, kind)
    tuned = {name: value for name, value in preset.items() if name not in given}
    config = Config(**{**tuned, **saved, **given, "env_name": env_name})
    notes = [f"{asked} is now {env_name}"] if env_name != asked else []
    if tuned:
        values = " ".join(f"{name}={value}" for name, value in tuned.items())
        notes.append(f"tuned preset (turned off by --preset=none): {values}")
    return given, config, notes


def use(command: str, arguments: Sequence[str]) -> None:
    """Do something else than training, by a command line. Raises ConfigError for what is no command."""
    from ppo.config.flags import parse_flags
    from ppo.errors import ConfigError

    if command not in COMMANDS:
        near = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = (
            f"did you mean {near[0]}?"
            if near
            else f"give one of train, {', '.join(COMMANDS)}, or flags only"
        )
        raise ConfigError(f"{command} is no command: {hint}")
    from ppo.commands import commands

    gc.enable()
    flags = getattr(commands, command.capitalize())
    flags(**parse_flags(arguments, flags, command))()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
