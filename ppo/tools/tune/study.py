"""Tables and plots of an Optuna study."""

from pathlib import Path

import optuna
from optuna import visualization
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState
from rich.table import Table

from ppo.tools.report import write_page

BEST_SHOWN = 5
PLOTS = {
    "Scores": visualization.plot_optimization_history,
    "Returns while learning": visualization.plot_intermediate_values,
    "What matters": lambda study: visualization.plot_param_importances(
        study, evaluator=PedAnovaImportanceEvaluator()
    ),
    "Scores by each flag": visualization.plot_slice,
    "All flags at once": visualization.plot_parallel_coordinate,
}


def describe(trial: FrozenTrial) -> str:
    """Return a line about a finished trial: its score, or why it has none, and its flags."""
    result = trial.user_attrs.get("error", trial.state.name.lower())
    if trial.state == TrialState.COMPLETE:
        result = f"{trial.value:,.4g}"
    return f"trial {trial.number}: {result}, {flags_of(trial)}"


def flags_of(trial: FrozenTrial) -> str:
    """Return the flags that a trial sets, as "name=value" separated by spaces."""
    return " ".join(f"{name}={x}" for name, x in trial.user_attrs.get("flags", {}).items())


def best_trials(study: optuna.Study, num_trials: int) -> Table:
    """Return a table of the best trials; its title says how many trials are in each state.

    num_trials: the planned number of trials."""
    trials = study.get_trials(deepcopy=False)
    states = [trial.state.name.lower() for trial in trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in sorted({*states}))
    table = Table(
        "trial", "score", "flags", title=f"{len(trials)} of {num_trials} trials: {counts}"
    )
    done = [(x.value or 0.0, x.number) for x in trials if x.state == TrialState.COMPLETE]
    is_greatest = study.direction == optuna.study.StudyDirection.MAXIMIZE
    for value, number in sorted(done, reverse=is_greatest)[:BEST_SHOWN]:
        table.add_row(str(number), f"{value:,.4g}", flags_of(trials[number]))
    return table


def write_plots(study: optuna.Study, path: Path) -> None:
    """Write Optuna's plots of a study as a self-contained HTML page. Raises OSError."""
    parts: list[str] = []
    for title, plot in PLOTS.items():
        html = plot(study).to_html(full_html=False, include_plotlyjs=not parts)
        parts.append(f"<h2>{title}</h2>{html}")
    write_page(path.parent.name, parts, path)
