"""Tables and plots of an Optuna study."""

import base64
import io
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState
from rich.table import Table

from ppo.extras.tools.report import as_figure, write_page
from ppo.system.imports import extra

with extra("tune"):
    import matplotlib

BEST_SHOWN = 5
MAX_LEGEND_CURVES = 10
SIZES = {"small": (4.6, 3.4), "large": (9, 5)}  # of plots, in inches, by their CSS class


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
    matplotlib.use("agg")  # without a window
    figures = (as_figure(title, size, _draw(plot, size)) for title, size, plot in _plots(study))
    write_page(path.parent.name, ['<div class="charts">', *figures, "</div>"], path)


def _plots(study: optuna.Study) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield titles, names of SIZES, and functions that draw and return axes, or an array of
    them."""
    from optuna.visualization import matplotlib as plots  # heavy

    score: Any = {"target_name": "score"}
    evaluator = PedAnovaImportanceEvaluator()
    yield "Scores", "small", partial(plots.plot_optimization_history, study, **score)
    yield "Returns while learning", "small", partial(plots.plot_intermediate_values, study)
    yield "What matters", "small", partial(plots.plot_param_importances, study, evaluator, **score)
    for name in dict.fromkeys(name for trial in study.trials for name in trial.params):
        yield f"Scores by {name}", "small", partial(plots.plot_slice, study, [name], **score)
    yield "All flags at once", "large", partial(plots.plot_parallel_coordinate, study, **score)


def _draw(plot: Callable[[], Any], size: str) -> str:
    """Return the picture that a function of _plots draws, or why it cannot, as HTML."""
    from matplotlib import pyplot

    picture = io.BytesIO()
    try:
        with matplotlib.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls all of these functions experimental
            axes = np.ravel(plot())[0]
            for place in ("left", "center"):
                axes.set_title("", loc=place)  # the page has its own
            legend = axes.get_legend()
            if legend and len(legend.get_texts()) > MAX_LEGEND_CURVES:
                legend.remove()
            axes.tick_params("x", which="minor", rotation=90)  # those of a logarithm are close
            axes.figure.set_size_inches(SIZES[size])
            axes.figure.savefig(picture, format="png", dpi=150, bbox_inches="tight")
    except Exception as error:  # such as: of a single trial nothing can be compared
        return f"<p>It cannot be drawn: {escape(str(error))}</p>"
    finally:
        pyplot.close("all")
    text = base64.b64encode(picture.getvalue()).decode()
    return f'<img src="data:image/png;base64,{text}">'
