"""The command line, the one place where an error becomes one sentence and an exit code."""

import os
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ppo import __version__
from ppo.config import Config, flag
from ppo.errors import ConfigError, Interrupted, PPOError, reason, suggest
from ppo.flags import checked, flags_of, help_of, split

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

USAGE = """Train PPO on ENV, or evaluate runs or policy files:

  ppo [train] [ENV] [--flag=value ...]
  ppo evaluate RUN ... [--flag=value ...]

--config=FILE reads flags from TOML or JSON; --help=all shows every flag.
"""
COMMON = ("env_name", "num_envs", "total_steps", "seed", "learning_rate", "model", "device")
ENVIRONMENT = re.compile(r":|-v\d+$")


@dataclass(frozen=True)
class Evaluate:
    episodes: int = flag(20, 1, 1e6)
    """Number of episodes."""
    num_envs: int = flag(8, 1, 1e6)
    """Number of environments that are played side by side."""
    seed: int = flag(0, 0, 2**32 - 1)
    """Random seed of the episodes."""
    stochastic: bool = False
    """Sample actions, in place of the most likely ones."""
    video: str | None = None
    """File to write a video to, such as play.mp4 or play.gif."""
    render: str | None = None
    """human: show the episodes in a window."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit code: 0 done, 1 failed, 2 bad command line, 3
    unusable checkpoint, 4 run folder in use, 129, 130 or 143 after a signal."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        run(sys.argv[1:] if arguments is None else [*arguments])
        return 0
    except Interrupted as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except PPOError as error:
        if os.environ.get("PPO_DEBUG"):
            traceback.print_exc()
        sentence, *details = error.args
        print(*filter(None, details), f"error: {sentence}", sep="\n", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BaseException as error:  # the user's code may raise anything
        traceback.print_exc()
        print(f"error: {reason(error)}: see the traceback above", file=sys.stderr)
        return 1


def run(arguments: list[str]) -> None:
    if "--version" in arguments:
        print(__version__)
        return
    command = "train"
    if arguments and not arguments[0].startswith("-") and not ENVIRONMENT.search(arguments[0]):
        command, *arguments = arguments
    if command not in ("train", "evaluate"):
        raise ConfigError(f"unknown command {command}{suggest(command, ['train', 'evaluate'])}")
    own = flags_of(Evaluate) if command == "evaluate" else {}
    flags = {**flags_of(Config), **own}
    if {"--help", "-h", "--help=all"} & {*arguments}:
        is_short = "--help=all" not in arguments
        print(USAGE, help_of({x: flags[x] for x in own or COMMON} if is_short else flags), sep="\n")
        return
    words, texts = split(arguments, flags)
    given = checked(texts, flags)  # before anything heavy is imported
    if command == "evaluate":
        evaluate(words, {x: given.pop(x) for x in own if x in given}, given)
        return
    if len(words) > 1:
        raise ConfigError(f"what is {words[1]}? write flags as --name=value")
    if words:
        given["env_name"] = words[0]
    from ppo.trainer import run_training

    run_training(given)


def evaluate(paths: list[str], options: dict[str, Any], flags: dict[str, Any]) -> None:
    """Evaluate runs or policy files. options: of Evaluate; flags: in place of the runs'."""
    if not paths:
        raise ConfigError("evaluate needs a run or a policy file: ppo evaluate runs/NAME")
    from ppo.policy import load_policy
    from ppo.process import StopSignals

    for path in paths:
        with StopSignals() as signals:
            policy = load_policy(path, **flags)
            result = policy.evaluate(**vars(Evaluate(**options)), should_stop=signals.any)
        if signals.received:
            raise Interrupted(f"{signals.received.name}: stopped", signals.received)
        metrics = "".join(f", {name} {value:.4g}" for name, value in result.env.items())
        print(
            f"{path}: return {result.mean:.2f} +- {result.interval:.2f} (95 % interval), standard "
            f"deviation {result.std:.2f}, {len(result.returns)} episodes{metrics}"
        )
