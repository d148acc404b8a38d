"""Summarise a run as a row of a table."""

import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ppo.config.flags import Flags, flag
from ppo.errors import CheckpointError, ConfigError
from ppo.run.folder import is_running
from ppo.run.intervals import confidence_interval
from ppo.run.reader import (
    METRICS,
    RETURN,
    RUN_SUMMARY,
    SUMMARY,
    RunRecord,
    read_content,
    read_run,
)
from ppo.run.result import differences, result_of
from ppo.system.output import printable, show
from ppo.system.state_dict import State

NOTHING = "-"  # where there is no value


def overview(run: RunRecord) -> dict[str, str]:
    """Return the main facts about a run, as formatted texts by name."""
    metrics = {name: values[-1] for name, values in run.metrics.items()}
    last = NOTHING
    if made := result_of(run.folder, run.config):
        _, step, episodes, returns = describe_evaluation(made, run.config)
        last = f"{returns} over {episodes} episode{'s' * (episodes != '1')} at step {step}"
    seconds = metrics["seconds"]
    faults = {name: x for name, x in metrics.items() if name.startswith("faults/") and x > 0}
    kinds = ", ".join(name.removeprefix("faults/").replace("_", " ") for name in faults)
    return {
        "environment": run.config["env_name"],
        "return in evaluation": last,
        "return in training": number(metrics[RETURN]),
        "steps": f"{metrics['step']:,.0f}",
        "time": _duration(seconds),
        "steps/s": f"{metrics['step'] / seconds:,.0f}" if seconds else NOTHING,
        "faults": f"{sum(faults.values()):,.0f} ({kinds})" if faults else "none",
    }


def describe_evaluation(made: State, config: State) -> tuple[str, str, str, str]:
    """Return texts about an evaluation of evaluations_of: when it was made and how it differs from
    the run's own, its step, its number of episodes, and its mean return with a 95 % interval, the
    environment's own metrics and how many episodes were cut off."""
    when = "at the end of training"
    if "checkpoint" in made:
        when = f"later, with seed {made.get('seed')}"
    step = NOTHING if made["step"] is None else f"{made['step']:,}"
    result = number(made["mean"])
    interval = confidence_interval(made["returns"], np.mean)
    if interval is not None:
        result += f" [{', '.join(map(number, interval))}]"
    more = [f"{name} {value:.4g}" for name, value in (made.get("env") or {}).items()]
    if made.get("unfinished"):
        more.append(f"{made['unfinished']:,} cut off")
    return (
        ", ".join([when, *differences(made, config)]),
        step,
        f"{len(made['returns']):,}",
        ", ".join([result, *more]),
    )


def _duration(seconds: float) -> str:
    """Return a time like 1:23:45."""
    return str(timedelta(seconds=round(seconds)))


def number(value: float) -> str:
    """Return a number with one decimal, or with four digits if it has many; NOTHING for NaN."""
    if np.isnan(value):
        return NOTHING
    return f"{value:,.1f}" if abs(value) < 1e15 else f"{value:.4g}"


class Runs(Flags):
    """Print a table of the runs in a folder, the newest last."""

    folder: str = flag("runs", "Folder in which to look for runs, at any depth.")

    def __call__(self) -> None:
        """Print the table, and a warning about each run that is damaged. Raises ConfigError if no
        run is found."""
        root = Path(self.folder)
        found = sorted(root.rglob(METRICS), key=lambda path: os.lstat(path).st_mtime)
        if not found:
            raise ConfigError(f"--folder={root}: there are no runs in it; give another")
        head = "run state environment result episodes steps training time"
        table = Table(*head.split(), box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for column in table.columns:
            column.overflow = "fold"  # names can be copied, and no number is cut
        for path in found:
            try:
                run = read_run(path.parent)
            except ConfigError as error:
                if os.path.lexists(path.parent / "config.json"):  # otherwise it is not a run
                    show(f"warning: {error}")
                continue
            metrics = {name: values[-1] for name, values in run.metrics.items()}
            result = episodes = NOTHING
            steps = f"{metrics['step']:,.0f}"
            if made := result_of(run.folder, run.config):
                result = number(made["mean"])
                episodes = f"{len(made['returns']):,}"
                if made["step"] != metrics["step"]:  # its last checkpoint is older
                    steps = f"{made['step']:,} of {steps}"
            table.add_row(
                printable(str(path.parent.relative_to(root))),
                _state(run),
                run.config["env_name"],
                result,
                episodes,
                steps,
                number(metrics[RETURN]),
                _duration(metrics["seconds"]),
            )
        Console(markup=False, emoji=False).print(table)


def _state(run: RunRecord) -> str:
    """Return "training", "ended", or "stopped" for a run that was stopped before its end."""
    if is_running(run.folder):
        return "training"
    with suppress(CheckpointError):  # which overview shows
        if read_content(run.folder / SUMMARY, RUN_SUMMARY)["steps"] == run.metrics["step"][-1]:
            return "ended"
    return "stopped"
