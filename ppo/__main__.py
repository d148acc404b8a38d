"""Run a command line: python -m ppo, python main.py or ppo, with the same arguments.

Heavy modules are imported where they are used, so that the isolated process can start early.
"""

import os
import sys

if (  # python -m has put the working folder before installed packages
    __name__ == "__main__"
    and os.path.isdir(sys.path[0])
    and os.path.samefile(sys.path[0], ".")
    and not os.path.samefile(".", os.path.join(os.path.dirname(__file__), os.pardir))
):
    del sys.path[0]

import errno
import gc
import re
import traceback
from collections.abc import Sequence
from pkgutil import resolve_name

from ppo.commands import all_commands
from ppo.errors import ConfigError, Interrupted, PPOError, suggest
from ppo.extensions import names_of
from ppo.system.imports import working_folder
from ppo.system.output import flush_output, show
from ppo.system.process import configure_command
from ppo.system.signals import STOP

IDENTIFIER = re.compile(r":|-v\d+$")  # of an environment
DEBUG = {"--debug", "--debug=1", "--debug=true", "--debug=True"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of this process, and return its exit code.

    0 done, 1 failed, 2 bad command line, 3 unusable checkpoint, 4 run folder in use, 129, 130 or
    143 after a signal. Errors are printed as one line.
    """
    if arguments is None:
        arguments = sys.argv[1:]
        STOP.keep_until_exit()
        configure_command()
    gc.disable()  # collecting garbage during the imports takes a third of the start
    try:
        with STOP, STOP.cutting_short("stopped the command at once"):
            working_folder()  # raises if there is none
            _run(arguments)
        return 0
    except KeyboardInterrupt:
        show(STOP.last_words())
        return 130
    except BaseException as error:  # the user's code may have one of its own
        if DEBUG & set(arguments) and not hasattr(error, "exit_code"):
            show(traceback.format_exc())
        if isinstance(error, OSError):
            error = _withheld(error, arguments) or error
        message = str(error) or type(error).__name__
        if isinstance(error, SystemExit):
            message = f"something has called sys.exit({error.code!r}): --debug shows where"
        if isinstance(error, PPOError):
            for details in error.args[1:]:  # a traceback
                show(details)
        if not getattr(error, "is_reported", False):
            line = " ".join(filter(None, map(str.strip, message.splitlines())))
            show(line if isinstance(error, Interrupted) else f"error: {line}")
        return getattr(error, "exit_code", 1)
    finally:
        flush_output()
        gc.enable()


def _withheld(error: OSError, arguments: Sequence[str]) -> ConfigError | None:
    """Return what to say where the system withholds what an argument names, a file or a folder,
    or any more open files; None if it is something else."""
    for argument in arguments:
        place = argument.rpartition("=")[2]
        if place and isinstance(error.filename, str):
            inside = os.path.relpath(error.filename, place)
            if inside.partition(os.sep)[0] != os.pardir:
                where = "" if inside == os.curdir else f": {error.filename}"
                return ConfigError(
                    f"{argument} cannot be used ({error.strerror}{where}): give another, or make "
                    "it accessible"
                )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return ConfigError(f"{error.strerror}: a limit must be higher (ulimit -n)")
    return None


def _run(arguments: Sequence[str]) -> None:
    """Run the command named by the first argument; without one, or with an environment id, train.
    Raises ConfigError for an unknown command."""
    commands = all_commands()
    name = "train"
    if arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
    if name not in commands and IDENTIFIER.search(name):
        name, arguments = "train", [name, *arguments]
    if name not in commands:
        hint = suggest(name, commands, f"give one of {', '.join(commands)}, or flags only")
        if instead := names_of("gone_commands").get(name):
            hint = f"it is gone since version 2: {instead}"
        raise ConfigError(f"unknown command {name}; {hint}")
    command = commands[name]
    if command.takes_environment and arguments and not arguments[0].startswith("-"):
        arguments = [f"--env_name={arguments[0]}", *arguments[1:]]
    if name != "train":  # which enables it when it has imported everything
        gc.enable()
    run = resolve_name(command.path)
    if isinstance(run, type):
        from ppo.config.flags import parse_flags

        usage = f"{name} [ENV]" if command.takes_environment else name
        run(**parse_flags(arguments, run, usage, about=command.about))()
    else:
        run(arguments)


if __name__ == "__main__":
    sys.exit(main())
