"""The command line, the one place where an error becomes one sentence and an exit code."""

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from ppo import __version__
from ppo.errors import ConfigError, Interrupted, PPOError, reason, suggest
from ppo.extras import COMMANDS, FLAGS
from ppo.flags import AllFlags, checked, flags_of, help_of, split

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

USAGE = f"""Train PPO on ENV, or evaluate runs or policy files:

  ppo [train] [ENV] [--flag=value ...]
  ppo evaluate RUN ... [--flag=value ...]

Commands: train, {", ".join(sorted(COMMANDS))}.
--help=all shows every flag.

  --config
      TOML or JSON file of flags, such as run.toml."""
COMMON = ("env_name", "num_envs", "total_steps", "seed", "learning_rate", "model", "device")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit code: 0 done, 1 failed, 2 bad command line, 3
    unusable checkpoint, 4 run folder in use, 129, 130 or 143 after a signal."""
    gc.set_threshold(100_000)  # imports make many objects and no garbage
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        run([*(sys.argv[1:] if arguments is None else arguments)] or ["--help"])
        return 0
    except PPOError as error:
        if os.environ.get("PPO_DEBUG"):
            traceback.print_exc()
        sentence, *details = error.args
        label = "" if isinstance(error, Interrupted) else "error: "
        if sentence:  # else another process has said it
            print(*filter(None, details), f"{label}{sentence}", sep="\n", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BaseException as error:  # the user's code may raise anything
        traceback.print_exc()
        print(f"error: {reason(error)}: see the traceback above", file=sys.stderr)
        return 1
    finally:
        gc.freeze()  # do not free every module at exit


def run(arguments: list[str]) -> None:
    if "--version" in arguments:
        print(__version__)
        return
    command = "train"
    if arguments[0] in ("train", *COMMANDS):
        command, *arguments = arguments
    module = import_module(COMMANDS[command]) if command in COMMANDS else None
    own = flags_of(module.Flags) if module else {}
    flags = AllFlags()
    flags.update(own)
    if {"--help", "-h", "--help=all"} & {*arguments}:
        is_all = "--help=all" in arguments and not module
        names = [*flags, *FLAGS] if is_all else [*own] or COMMON
        print(
            module.__doc__ if module else USAGE,
            help_of({name: flags[name] for name in names}),
            sep="\n",
        )
        return
    words, texts = split(arguments, flags)
    given = checked(texts, flags)  # before anything heavy is imported
    if module:
        options = {x: given.pop(x) for x in own if x in given}
        module.main(words, module.Flags(**options), given)
        return
    if words[1:]:
        hint = suggest(words[0], COMMANDS)
        raise ConfigError(f"unexpected {words[1]}: write --name=value, or a command{hint}")
    if words:
        given["env_name"] = words[0]
    from ppo.trainer import run_training

    run_training(given)
