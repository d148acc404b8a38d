"""Summarise a run in a few texts."""

import os
from datetime import timedelta
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ppo.config.flags import Flags, flag
from ppo.errors import ConfigError
from ppo.run.changes import is_running
from ppo.run.reader import METRICS, RETURN, RunRecord, read_run
from ppo.run.statistics import confidence_interval
from ppo.system.files import read_json
from ppo.system.state_dict import State

NOTHING = "-"  # where there is no value


def overview(run: RunRecord) -> dict[str, str]:
    """Return the main facts about a run, as formatted texts by name."""
    metrics = {name: values[-1] for name, values in run.metrics.items()}
    own = run.config.get("env_kwargs")
    evaluations = [
        made
        for made in evaluations_of(run)
        if made.get("deterministic", True) and made.get("env_kwargs", own) == own
    ]
    last = describe_evaluation(evaluations[-1])[2] if evaluations else NOTHING
    mean_return = metrics[RETURN]
    faults = {name: x for name, x in metrics.items() if name.startswith("faults/") and x > 0}
    kinds = ", ".join(name.removeprefix("faults/").replace("_", " ") for name in faults)
    return {
        "environment": run.config["env_name"],
        "return in evaluation": last,
        "return in training": NOTHING if np.isnan(mean_return) else f"{mean_return:,.1f}",
        "steps": f"{metrics['step']:,.0f}",
        "time": str(timedelta(seconds=round(metrics["seconds"]))),
        "steps/s": f"{metrics['step'] / metrics['seconds']:,.0f}",
        "faults": f"{sum(faults.values()):,.0f} ({kinds})" if faults else "none",
    }


def evaluations_of(run: RunRecord) -> list[State]:
    """Return the results of the evaluation at the end of a run and of later ones by ppo evaluate.

    Evaluations without episodes are left out.
    """
    last = read_json(run.folder / "summary.json", {}).get("evaluation") or {}
    later = read_json(run.folder / "evaluation.json", [])
    return [made for made in (last, *later) if made.get("returns")]


def describe_evaluation(made: State) -> tuple[str, str, str]:
    """Return texts about an evaluation: when it was made, its number of episodes, and its mean
    return with a 95 % interval and the environment's own metrics."""
    when = "at the end of training"
    if "checkpoint" in made:
        when = f"later, with seed {made.get('seed')}"
        if not made.get("deterministic", True):
            when += ", random actions"
    result = f"{made['mean']:,.1f}"
    interval = confidence_interval(made["returns"], np.mean)
    if interval is not None:
        result += " [{:,.1f}, {:,.1f}]".format(*interval)
    own = [f"{name} {value:.4g}" for name, value in made.get("env", {}).items()]
    return when, f"{made['episodes']:,}", ", ".join([result, *own])


class Runs(Flags):
    """Print a table of the runs in a folder, the newest last."""

    folder: str = flag("runs", "Folder to look for runs in, at any depth.")

    def __call__(self) -> None:
        """Print the table. Raises ConfigError if no run is found."""
        root = Path(self.folder)
        found = sorted(root.rglob(METRICS), key=os.path.getmtime)
        if not found:
            raise ConfigError(f"--folder={root}: there are no runs in it; give another")
        head = ("run", "state", "environment", "evaluation", "training", "steps", "time")
        table = Table(*head, box=None)
        table.columns[0].overflow = "fold"  # names can be copied
        for path in found:
            try:
                run = read_run(path.parent)
            except ConfigError:  # it has just begun, or is no run
                continue
            facts = overview(run)
            table.add_row(
                str(path.parent.relative_to(root)),
                _state(run),
                facts["environment"],
                facts["return in evaluation"].partition(" ")[0],
                facts["return in training"],
                facts["steps"],
                facts["time"],
            )
        Console().print(table)


def _state(run: RunRecord) -> str:
    """Return "training", "ended", or "stopped" for a run that was stopped before its end."""
    if is_running(run.folder):
        return "training"
    summary = read_json(run.folder / "summary.json", {})
    return "ended" if summary.get("steps") == run.metrics["step"][-1] else "stopped"
