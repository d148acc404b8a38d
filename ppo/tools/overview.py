"""Summarise a run in a few texts."""

import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ppo.config.flags import Flags, flag
from ppo.errors import CheckpointError, ConfigError
from ppo.run.changes import is_running
from ppo.run.reader import (
    METRICS,
    MILESTONES,
    RESULT,
    RETURN,
    RUN_SUMMARY,
    SUMMARY,
    RunRecord,
    read_content,
    read_optional,
    read_run,
)
from ppo.run.statistics import confidence_interval
from ppo.system.output import printable, show
from ppo.system.state_dict import State

NOTHING = "-"  # where there is no value
MAX_EVALUATIONS = 1000  # of which the last ones are shown


def overview(run: RunRecord) -> dict[str, str]:
    """Return the main facts about a run, as formatted texts by name."""
    metrics = {name: values[-1] for name, values in run.metrics.items()}
    own = run.config.get("env_kwargs")
    evaluations = [
        made
        for made in evaluations_of(run)
        if made.get("deterministic", True)
        and made.get("env_kwargs", own) == own
        and not _is_of_milestone(made)
    ]
    last = describe_evaluation(evaluations[-1])[2] if evaluations else NOTHING
    seconds = metrics["seconds"]
    faults = {name: x for name, x in metrics.items() if name.startswith("faults/") and x > 0}
    kinds = ", ".join(name.removeprefix("faults/").replace("_", " ") for name in faults)
    return {
        "environment": run.config["env_name"],
        "return in evaluation": last,
        "return in training": number(metrics[RETURN]),
        "steps": f"{metrics['step']:,.0f}",
        "time": str(timedelta(seconds=round(seconds))),
        "steps/s": f"{metrics['step'] / seconds:,.0f}" if seconds else NOTHING,
        "faults": f"{sum(faults.values()):,.0f} ({kinds})" if faults else "none",
    }


def evaluations_of(run: RunRecord) -> list[State]:
    """Return the results of the evaluation at the end of a run and of later ones by ppo evaluate.

    Evaluations without episodes are left out, and with a warning those of a file that is damaged.
    """
    last = read_optional(run.folder / SUMMARY, RUN_SUMMARY, {}).get("evaluation") or {}
    later = read_optional(run.folder / "evaluation.json", [RESULT], [])
    return [made for made in (last, *later[-MAX_EVALUATIONS:]) if made.get("returns")]


def describe_evaluation(made: State) -> tuple[str, str, str]:
    """Return texts about an evaluation: when it was made, its number of episodes, and its mean
    return with a 95 % interval and the environment's own metrics."""
    when = "at the end of training"
    if "checkpoint" in made:
        when = f"later, with seed {made.get('seed')}"
        if _is_of_milestone(made):
            when = f"of milestone {Path(made['checkpoint']).stem}, with seed {made.get('seed')}"
        if not made.get("deterministic", True):
            when += ", random actions"
    result = number(float(np.mean(made["returns"])))
    interval = confidence_interval(made["returns"], np.mean)
    if interval is not None:
        result += f" [{', '.join(map(number, interval))}]"
    own = [f"{name} {value:.4g}" for name, value in made.get("env", {}).items()]
    return when, f"{len(made['returns']):,}", ", ".join([result, *own])


def _is_of_milestone(made: State) -> bool:
    """Return whether an evaluation is of a checkpoint that --keep_every has kept."""
    return Path(made.get("checkpoint") or "").parent.name == MILESTONES


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
        head = ("run", "state", "environment", "evaluation", "training", "steps", "time")
        table = Table(*head, box=None)
        table.columns[0].overflow = "fold"  # names can be copied
        for path in found:
            try:
                run = read_run(path.parent)
            except ConfigError as error:
                if os.path.lexists(path.parent / "config.json"):  # otherwise it is not a run
                    show(f"warning: {error}")
                continue
            facts = overview(run)
            table.add_row(
                printable(str(path.parent.relative_to(root))),
                _state(run),
                facts["environment"],
                facts["return in evaluation"].partition(" ")[0],
                facts["return in training"],
                facts["steps"],
                facts["time"],
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
