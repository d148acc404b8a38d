"""List runs."""

import os
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ppo.analysis.overview import overview
from ppo.config.flags import Flags, flag
from ppo.errors import CheckpointError, ConfigError
from ppo.run.changes import is_running
from ppo.run.reader import METRICS, RUN_SUMMARY, SUMMARY, RunRecord, read_content, read_run
from ppo.system.output import printable, show


class Runs(Flags):
    """Print a table of the runs in a folder, the newest last."""

    folder: str = flag("runs", "Folder to look for runs in, at any depth.")

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
                if os.path.lexists(path.parent / "config.json"):  # otherwise it is no run
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
