"""Summarise a run as a row of a table."""

import csv
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ppo.config.flags import Flags, flag
from ppo.errors import CheckpointError, ConfigError
from ppo.extras.tools.groups import environment_of, group_runs
from ppo.extras.tools.result import differences, result_of
from ppo.extras.tools.resumes import read_latest
from ppo.run.folder import is_running
from ppo.run.intervals import confidence_interval, interquartile_mean
from ppo.run.reader import METRICS, RETURN, RUN_SUMMARY, SUMMARY, RunRecord, read_content
from ppo.system.output import aligned, printable, readable, show
from ppo.system.state_dict import State

NOTHING = "-"  # where there is no value
COLUMNS = ("run", "state", "environment", "result", "episodes", "steps", "training", "time")
TEXTS = {"run", "state", "environment"}
LEFT_OUT = ("environment", "episodes", "training", "time", "state")  # in this order, for width


def overview(run: RunRecord) -> dict[str, str]:
    """Return the main facts about a run, as formatted texts by name; own_numbers has the
    environment's own."""
    metrics = {name: values[-1] for name, values in run.metrics.items()}
    last = NOTHING
    if made := result_of(run.folder, run.config):
        _, step, episodes, returns = describe_evaluation(made, run.config)
        last = f"{returns} over {episodes} episode{'s' * (episodes != '1')} at step {step}"
    seconds = metrics["seconds"]
    faults = {name: x for name, x in metrics.items() if name.startswith("faults/") and x > 0}
    kinds = ", ".join(name.removeprefix("faults/").replace("_", " ") for name in faults)
    return {
        "environment": environment_of(run),
        "return in evaluation": last,
        "return in training": number(metrics[RETURN]),
        "steps": f"{metrics['step']:,.0f}",
        "time": _duration(seconds),
        "steps/s": f"{metrics['step'] / seconds:,.0f}" if seconds else NOTHING,
        "faults": f"{sum(faults.values()):,.0f} ({kinds})" if faults else "none",
    }


def describe_evaluation(made: State, config: State) -> tuple[str, str, str, str]:
    """Return texts about an evaluation of evaluations_of: when it was made and how it differs from
    the run's own, its step, its number of episodes, and its mean return with a 95 % interval and
    how many episodes were cut off."""
    when = "at the end of training"
    if "checkpoint" in made:
        when = f"later, with seed {made.get('seed')}"
    step = NOTHING if made["step"] is None else f"{made['step']:,}"
    result = number(made["mean"])
    interval = confidence_interval(made["returns"], np.mean)
    if interval is not None:
        result += f" [{', '.join(map(number, interval))}]"
    if made.get("unfinished"):
        result += f", {made['unfinished']:,} cut off"
    when = ", ".join([when, *differences(made, config)])
    return when, step, f"{len(made['returns']):,}", result


def seeds_overview(runs: Sequence[RunRecord]) -> list[str]:
    """Return the interquartile means, with 95 % intervals, of the returns of runs that differ only
    by their seed, in evaluation and in training; NOTHING for what a run lacks."""
    made = [(result_of(run.folder, run.config) or {}).get("mean", np.nan) for run in runs]
    texts = []
    for values in (made, [run.metrics[RETURN][-1] for run in runs]):
        interval = confidence_interval(values, interquartile_mean)
        if interval is None or not np.isfinite(values).all():
            texts.append(NOTHING)
            continue
        texts.append(f"{number(interquartile_mean(values))} [{', '.join(map(number, interval))}]")
    return texts


def own_numbers(made: State | None) -> dict[str, float]:
    """Return the means of the environment's own metrics in an evaluation, by name."""
    found = (made or {}).get("env") or {}
    return {name: found[name] for name in distinct(found)}


def distinct(names: Iterable[str]) -> list[str]:
    """Return names of an environment's own metrics, without is_success where there is success_rate,
    which the trainer has made of it."""
    known = dict.fromkeys(names)
    twice = {prefix + "is_success" for prefix in ("", "env/") if prefix + "success_rate" in known}
    return [name for name in known if name not in twice]


def _duration(seconds: float) -> str:
    """Return a time like 1:23:45."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def number(value: float) -> str:
    """Return a number in readable digits, NOTHING for NaN."""
    return NOTHING if np.isnan(value) else readable(value)


class Row(NamedTuple):
    """A run, or several that differ only by their seed, in the table. None: there is no value."""

    run: str
    state: str
    environment: str
    result: float | None
    episodes: int | None
    result_step: int | None
    steps: int
    training: float | None
    seconds: float

    def texts(self) -> tuple[str, ...]:
        """Return the cells of COLUMNS, whose numbers are plain: programs can read them."""
        steps = str(self.steps)
        if self.result_step not in (None, self.steps):  # its last checkpoint is older
            steps = f"{self.result_step} of {steps}"
        result, training = (
            NOTHING if value is None else number(value).replace(",", "")
            for value in (self.result, self.training)
        )
        episodes = NOTHING if self.episodes is None else str(self.episodes)
        time = _duration(self.seconds)
        return self.run, self.state, self.environment, result, episodes, steps, training, time


def row_of(run: RunRecord, root: Path) -> Row:
    """Return the row of a run. root: the folder in which it was looked for."""
    step, seconds, training = (run.metrics[x][-1].item() for x in ("step", "seconds", RETURN))
    made = result_of(run.folder, run.config) or {}
    return Row(
        run=printable(str(run.folder.relative_to(root))),
        state=_state(run),
        environment=environment_of(run),
        result=made.get("mean"),
        episodes=len(made["returns"]) if made else None,
        result_step=made.get("step"),
        steps=int(step),
        training=None if np.isnan(training) else training,
        seconds=seconds,
    )


def row_of_seeds(rows: Sequence[Row]) -> Row:
    """Return the row of runs by several seeds in one folder: interquartile means of what all of
    them have, the steps that all have reached, and the time of the slowest."""
    columns = {name: [getattr(row, name) for row in rows] for name in Row._fields}
    known = {name: None not in values for name, values in columns.items()}

    def mean(name: str) -> float | None:
        return float(interquartile_mean(columns[name])) if known[name] else None

    return Row(
        run=os.path.dirname(rows[0].run),
        state=f"{len(rows)} seeds",
        environment=rows[0].environment,
        result=mean("result"),
        episodes=sum(columns["episodes"]) if known["episodes"] else None,
        result_step=None,
        steps=min(columns["steps"]),
        training=mean("training"),
        seconds=max(columns["seconds"]),
    )


class Runs(Flags):
    """Print a table of the runs in a folder, the newest last; before several seeds a row of their
    interquartile means."""

    folder: str = flag("runs", "Folder in which to look for runs, at any depth.")
    csv: bool = flag(False, "Print comma-separated values instead, a row for each run.")

    def __call__(self) -> None:
        """Print the table, and a warning about each run that is damaged. Raises ConfigError if no
        run is found, PermissionError if the folder must not be read."""
        root = Path(self.folder)
        with suppress(FileNotFoundError, NotADirectoryError):
            os.listdir(root)  # which looking for files does without an error
        found = sorted(root.rglob(METRICS), key=lambda path: os.lstat(path).st_mtime)
        if not found:
            raise ConfigError(f"--folder={root}: there are no runs in it; give another")
        together: dict[Path, list[RunRecord]] = {}  # the seeds of one folder; the newest last
        for folder in (path.parent for path in found):
            try:
                run = read_latest(folder)
            except ConfigError as error:
                if os.path.lexists(folder / "config.json"):  # otherwise it is not a run
                    show(f"warning: {error}")
                continue
            is_seed = re.fullmatch(r"s\d+", folder.name) and folder.parent != root
            key = folder.parent if is_seed else folder
            together[key] = [*together.pop(key, []), run]
        rows = []
        for runs in together.values():
            runs.sort(key=lambda run: (len(run.folder.name), run.folder))  # s2 before s10
            own = [row_of(run, root) for run in runs]
            if len(runs) > 1 and len(group_runs(runs)) == 1 and not self.csv:
                rows.append(row_of_seeds(own))
            rows += own
        with suppress(BrokenPipeError):  # whoever reads it has seen enough
            if self.csv:
                csv.writer(sys.stdout, lineterminator="\n").writerows([Row._fields, *rows])
            else:
                print(*lines_of(rows), sep="\n")


def lines_of(rows: Iterable[Row]) -> list[str]:
    """Return the lines of the table: on a terminal without the columns that do not fit in its
    width, elsewhere with all. Names are whole."""
    table: list[tuple[str, ...]] = [COLUMNS, *(row.texts() for row in rows)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    left_out = iter(LEFT_OUT)
    while True:
        lines = aligned(table, sum(name in TEXTS for name in table[0]))
        name = next(left_out, None)
        if width is None or name is None or max(map(len, lines)) <= width:
            return lines
        place = table[0].index(name)
        table = [(*cells[:place], *cells[place + 1 :]) for cells in table]


def _state(run: RunRecord) -> str:
    """Return "training", "ended", or "stopped" for a run that was stopped before its end."""
    if is_running(run.folder):
        return "training"
    with suppress(CheckpointError):  # which overview shows
        if read_content(run.folder / SUMMARY, RUN_SUMMARY)["steps"] == run.metrics["step"][-1]:
            return "ended"
    return "stopped"
