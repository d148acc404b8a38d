"""The command line, the one place where an error becomes one sentence and an exit code."""

import os
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from ppo.errors import ConfigError, Interrupted, PPOError, reason, suggest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

USAGE = """ppo [train] [ENV] [--flag=value ...], or ppo evaluate RUN ... [--flag=value ...]

Train PPO on ENV, or evaluate runs or policy files. ppo --help=all shows every flag."""
COMMON = ("env_name", "num_envs", "total_steps", "seed", "learning_rate", "model", "device")
ENVIRONMENT = re.compile(r":|-v\d+$")
DEBUG = "PPO_DEBUG"


@dataclass(frozen=True)
class Evaluate:
    """Flags of ppo evaluate."""

    episodes: int = 20
    """Number of episodes."""
    num_envs: int = 8
    """Number of environments that are played side by side."""
    seed: int = 0
    """Random seed of the episodes."""
    stochastic: bool = False
    """Sample actions, in place of the most likely ones."""
    video: str | None = None
    """File to write a video to, such as play.mp4 or play.gif."""
    render: str | None = None
    """human: show the episodes in a window."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of this process, and return its exit code: 0 done, 1
    failed, 2 bad command line, 3 unusable checkpoint, 4 run folder in use, 129, 130, 138 or 143
    after a signal."""
    given = sys.argv[1:] if arguments is None else [*arguments]
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        _run(given)
        return 0
    except Interrupted as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except PPOError as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        for details in filter(None, error.args[1:]):
            print(details, file=sys.stderr)
        print(f"error: {error.args[0] if error.args else error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BaseException as error:  # the user's code may raise anything
        if isinstance(error, SystemExit) and {"-h", "--help"} & {*given}:
            return 0
        traceback.print_exc()
        print(f"error: {reason(error)}: see the traceback above", file=sys.stderr)
        return 1


def _run(arguments: list[str]) -> None:
    """Run the command that the first word names; without one, or with an environment, train."""
    if "--version" in arguments:
        from ppo import __version__

        print(__version__)
        return
    name = arguments[0] if arguments and not arguments[0].startswith("-") else "train"
    rest = arguments[1:] if arguments[:1] == [name] else arguments
    if ENVIRONMENT.search(name):
        name, rest = "train", arguments
    if name == "train":
        train(rest)
    elif name == "evaluate":
        evaluate(rest)
    else:
        raise ConfigError(f"unknown command {name}{suggest(name, ['train', 'evaluate'])}")


def train(arguments: list[str]) -> None:
    """Train by the flags of a command line."""
    from ppo.config import Config
    from ppo.flags import Parser, checked

    if "--help=all" in arguments:
        Parser([Config], USAGE).print_help()
        return
    words, given = Parser([Config], USAGE, COMMON).split(arguments)
    if len(words) > 1:
        raise ConfigError(f"what is {words[1]}? write flags as --name=value")
    if words:
        given["env_name"] = words[0]
    checked(given, [Config])  # before anything heavy is imported
    from ppo.trainer import run_training

    run_training(given)


def evaluate(arguments: list[str]) -> None:
    """Evaluate runs or policy files, and print a line for each."""
    from ppo.config import Config
    from ppo.flags import Parser, checked, hints_of

    own = hints_of([Evaluate])
    words, given = Parser([Evaluate, Config], USAGE, [*own]).split(arguments)
    if not words:
        raise ConfigError("evaluate needs a run or a policy file: ppo evaluate runs/NAME")
    options = Evaluate(**checked({x: given.pop(x) for x in own if x in given}, [Evaluate]))
    from ppo.evaluation import interval
    from ppo.policy import load_policy
    from ppo.signals import StopSignals

    for word in words:
        policy = load_policy(word, **given)
        with StopSignals() as signals:
            result = policy.evaluate(
                options.episodes,
                num_envs=options.num_envs,
                deterministic=not options.stochastic,
                seed=options.seed,
                video=options.video,
                render=options.render,
                should_stop=signals.any,
            )
        if signals.received:
            raise Interrupted(f"{signals.received.name}: stopped", signals.received)
        if result.mean is None:
            print(f"{word}: no episodes")
            continue
        metrics = "".join(f", {name} {value:.4g}" for name, value in result.env.items())
        print(
            f"{word}: return {result.mean:.2f} +- {interval(result.returns):.2f} (95 % interval), "
            f"standard deviation {result.std:.2f}, {result.episodes} episodes{metrics}"
        )
