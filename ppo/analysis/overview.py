"""Summarise a run in a few texts."""

from datetime import timedelta

import numpy as np

from ppo.analysis.statistics import confidence_interval
from ppo.run.reader import RETURN, RunRecord
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
