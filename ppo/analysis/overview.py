"""Summarise a run in a few texts."""

from datetime import timedelta

import numpy as np

from ppo.analysis.statistics import confidence_interval
from ppo.run.reader import RESULT, RETURN, RUN_SUMMARY, SUMMARY, RunRecord, read_optional
from ppo.system.state_dict import State

NOTHING = "-"  # where there is no value
MOST_EVALUATIONS = 1000  # of which the last ones are described


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
    return [made for made in (last, *later[-MOST_EVALUATIONS:]) if made.get("returns")]


def describe_evaluation(made: State) -> tuple[str, str, str]:
    """Return texts about an evaluation: when it was made, its number of episodes, and its mean
    return with a 95 % interval and the environment's own metrics."""
    when = "at the end of training"
    if "checkpoint" in made:
        when = f"later, with seed {made.get('seed')}"
        if not made.get("deterministic", True):
            when += ", random actions"
    result = number(float(np.mean(made["returns"])))
    interval = confidence_interval(made["returns"], np.mean)
    if interval is not None:
        result += f" [{', '.join(map(number, interval))}]"
    own = [f"{name} {value:.4g}" for name, value in made.get("env", {}).items()]
    return when, f"{len(made['returns']):,}", ", ".join([result, *own])


def number(value: float) -> str:
    """Return a number with one decimal, or with four digits if it has many; NOTHING for NaN."""
    if np.isnan(value):
        return NOTHING
    return f"{value:,.1f}" if abs(value) < 1e15 else f"{value:.4g}"
