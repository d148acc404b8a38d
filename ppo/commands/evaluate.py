"""Evaluate saved policies."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.console import Console
from rich.progress import Progress

from ppo.commands.policy_flags import PolicyFlags, folder_of, interval_text
from ppo.config.config import flags_of_extensions
from ppo.config.flags import Count, Flags, Settings, flag
from ppo.envs.errors import EnvironmentUnavailable, WorkerError
from ppo.errors import CheckpointError, ConfigError, SaveFailed
from ppo.guard import guard
from ppo.policy.evaluation import MAX_STEPS
from ppo.policy.policy import Policy
from ppo.policy.spectators import spectators_of
from ppo.run.checkpoint import find_checkpoint, load
from ppo.run.intervals import confidence_interval
from ppo.run.reader import EVALUATIONS
from ppo.run.summary import Evaluation
from ppo.system.files import check_folder, load_json, locked, read_json, write_json
from ppo.system.output import aligned, printable, readable
from ppo.system.state_dict import State

NOTHING = "-"  # where there is no value

if TYPE_CHECKING:

    class SpectatorFlags(Flags):
        """Further flags, of extensions."""

else:
    SpectatorFlags = flags_of_extensions("spectators")


class Evaluate(SpectatorFlags, PolicyFlags):
    """Evaluate policies by whole episodes, as the environment itself counts them."""

    runs: list[str] = flag(
        (),
        "Folders of runs, their names in runs/, or files of checkpoints; several of the same "
        "environment play the same episodes and are compared in a table.",
        nargs="+",
    )
    episodes: Count = flag(100, "Number of episodes, of each policy.")
    env_kwargs: Any | None = flag(
        None, "Keyword arguments of the environment; none: those of the run."
    )
    max_steps: Count = flag(
        MAX_STEPS, "Steps after which an episode is cut off; its return so far counts."
    )
    num_envs: Count = flag(8, "Number of parallel environments.")
    stochastic: bool = flag(
        False, "Sample actions, as in training, instead of taking the most likely ones."
    )
    seed: int | None = flag(
        None, "Seed of the episodes; none: the seed of the run.", low=0, high=2**32 - 1
    )
    render: Literal["human"] | None = flag(None, "Show the episodes in a window; none: no window.")
    output: str | None = flag(
        None,
        "JSON file to append the results to; none: evaluation.json in the run's folder, but for "
        "episodes that are filmed or shown.",
    )

    def __call__(self) -> None:
        """Evaluate the policies, print a summary or a table, and add the results to JSON files.

        Raises ConfigError for unusable flags or files, and for policies of different environments;
        CheckpointError if a checkpoint cannot be used or its environment cannot be made,
        WorkerError if the environment raises or hangs, SaveFailed if the results cannot be
        written."""
        asked = {name: getattr(self, name) for name in SpectatorFlags.names()}
        for name, value in {"render": self.render, **asked}.items():
            if len(self.runs) > 1 and value:
                raise ConfigError(
                    f"--{name} is for one policy, and {len(self.runs)} are given: leave it out, or "
                    "give one of them"
                )
        spectators = spectators_of(asked)  # raises before the time is spent
        shown = [one.option for one in spectators if one.render_mode]
        if self.render and shown:
            raise ConfigError(f"--render=human and --{shown[0]}: give one of them")
        is_shown = bool(self.render or shown)
        paths = [find_checkpoint(run) for run in self.runs]
        for path in paths:
            if output := self._output_of(path, is_shown):
                _add(check_folder("--output=", output))
        policies = {path: self.load(path, env_kwargs=self.env_kwargs) for path in paths}
        _check_same_environment(policies)
        seed = policies[paths[0]].config.seed if self.seed is None else self.seed
        steps = {path: load(path).get("step") for path in paths}
        results: dict[Path, Evaluation] = {}
        try:
            for path, policy in policies.items():
                try:
                    results[path] = self._play(policy, seed, asked)
                except (EnvironmentUnavailable, WorkerError) as error:
                    if not policy.env_attributes:
                        raise  # nothing in the file is to blame
                    raise CheckpointError(
                        f"{path} cannot be evaluated with its env_attributes ({error}): "
                        "give another"
                    ) from error
                if len(self.runs) == 1:
                    self._print(path, results[path])
                if output := self._output_of(path, is_shown):
                    self._save(output, path, steps[path], policy, seed, results[path])
        finally:  # those before a failure are shown, too
            if results and len(self.runs) > 1:
                print_table(results, steps)
        for spectator in spectators:
            print(spectator.result)

    def _output_of(self, path: Path, is_shown: bool) -> Path | None:
        """Return the JSON file for the results of a checkpoint; None for episodes that are shown,
        unless a file is asked for."""
        if self.output or not is_shown:
            return Path(self.output or folder_of(path) / EVALUATIONS)
        return None

    def _play(self, policy: Policy, seed: int, asked: Settings) -> Evaluation:
        """Evaluate a policy, with a progress bar on a terminal. asked: of spectators."""
        console = Console(quiet=not sys.stdout.isatty())
        with Progress(transient=True, console=console) as progress:
            task = progress.add_task("evaluation", total=self.episodes)
            return guard().call(
                "the evaluation",
                policy.config,
                policy.evaluate,
                self.episodes,
                not self.stochastic,
                1 if self.render else self.num_envs,
                render_mode=self.render,
                seed=seed,
                max_steps=self.max_steps,
                on_progress=lambda done: progress.update(task, completed=done),
                **asked,
            )

    def _print(self, path: Path, result: Evaluation) -> None:
        """Print the result of one policy."""
        interval = confidence_interval(result.returns, np.mean)
        print(
            f"{path}: return {result.describe()}{interval_text(interval)}, "
            f"median {readable(np.median(result.returns))}, "
            f"mean length {np.mean(result.lengths):.0f}, episodes: {self.episodes}"
        )
        if result.env:
            print("environment:", *(f"{name}={x:.4g}" for name, x in result.env.items()))
        if result.unfinished:
            print(f"{result.unfinished} episodes were cut off after {self.max_steps:,} steps")

    def _save(
        self,
        output: Path,
        path: Path,
        step: int | None,
        policy: Policy,
        seed: int,
        result: Evaluation,
    ) -> None:
        """Add a result to its JSON file. Raises as _add does."""
        interval = confidence_interval(result.returns, np.mean)
        entry = {
            "checkpoint": str(path),
            "run_id": read_json(path.absolute().parent.parent / "config.json").get("run_id"),
            "step": step,
            "env_name": policy.config.env_name,
            "env_kwargs": policy.config.env_kwargs,
            "wrapper": policy.config.wrapper,
            "max_steps": self.max_steps,
            "seed": seed,
            "deterministic": not self.stochastic,
            **asdict(result),
            "median": float(np.median(result.returns)),
            "interval_95": interval if interval is None else interval.tolist(),
        }
        _add(output, entry)


def _check_same_environment(policies: Mapping[Path, Policy]) -> None:
    """Raise ConfigError if the returns of policies do not compare."""
    found: dict[str, Path] = {}
    for path, policy in policies.items():
        config = policy.config
        played = f"{config.env_name} with {json.dumps(config.env_kwargs, sort_keys=True)}"
        found.setdefault(played.removesuffix(" with {}"), path)
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        raise ConfigError(
            f"{first} plays {one}, {second} {other}: evaluate them one by one, or give --env_name "
            "and --env_kwargs for all"
        )


def print_table(results: Mapping[Path, Evaluation], steps: Mapping[Path, int | None]) -> None:
    """Print a line for each policy, by the path of its file. steps: of training; None: unknown, as
    for a policy by itself."""
    table = [["policy", "step", "return", "length", "success rate"]]
    for path, result in results.items():
        step = steps[path]
        success = result.env.get("success_rate")
        cells = [
            printable(str(path)),
            NOTHING if step is None else f"{step:,}",
            result.describe(),
            f"{np.mean(result.lengths):,.0f}",
            NOTHING if success is None else f"{success:.1%}",
        ]
        table.append(cells)
    if not any("success_rate" in result.env for result in results.values()):
        table = [cells[:-1] for cells in table]
    print(*aligned(table), sep="\n")
    for path, result in results.items():
        if result.unfinished:
            print(f"{path}: {result.unfinished} episodes were cut off by --max_steps")


def _add(path: Path, *entries: State) -> None:
    """Add entries to the list in a JSON file, as one of several processes that may do so at once.
    Without entries only look whether that can be done. Raises ConfigError if the file cannot be
    read or holds no list, or if it is not a regular file, which might never end or be replaced;
    also if it cannot be written, but SaveFailed for entries."""
    try:
        with locked(path):
            before = _read_list(path)
            if entries:
                write_json(path, [*before, *entries])
    except OSError as error:
        failed = SaveFailed if entries else ConfigError
        raise failed(
            f"--output={path} cannot be written ({error.strerror or error}): give another file"
        ) from error


def _read_list(path: Path) -> list[Any]:
    """Return the list in a JSON file, [] if there is no file. Raises ConfigError if it cannot be
    read or holds no list, or if it is not a regular file, which might never end or be replaced."""
    try:
        entries = load_json(path)
        if not isinstance(entries, list):
            raise ValueError("it is not a list")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--output={path} cannot be added to ({error}): give another file"
        ) from error
    return entries
