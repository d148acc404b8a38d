"""metrics.csv: a row for each iteration."""

import csv
import io
from collections.abc import Iterable, Sequence

from ppo.errors import NotSaved
from ppo.run.folder import RunFolder
from ppo.run.reader import METRICS, Row
from ppo.system.files import AppendedFile, atomic_write


class MetricsFile:
    """Append rows to a run's metrics.csv; each is on disk at once.

    rows: those of a resumed run that count; the file is written anew with them. What cannot be
    written, for the disk is full, waits in memory for the next row.
    """

    def __init__(self, run: RunFolder, rows: Sequence[Row]) -> None:
        self.run = run
        self.rows = list(rows)
        self.file: AppendedFile | None = None
        self.failure: OSError | None = None

    def write(self, metrics: Row) -> None:
        """Write a row; floats have six digits."""
        row = {name: f"{x:.6g}" if isinstance(x, float) else x for name, x in metrics.items()}
        path = self.run.path / METRICS
        try:
            if self.file is None:
                with atomic_write(path) as temporary:
                    temporary.write_text(_format(self.rows, list(row), with_header=True))
                self.file = AppendedFile(path)
            failure = self.file.append(_format([row], list(row)))
        except OSError as error:
            failure = error
            self.rows.append(row)
        if failure and not self.failure:
            self.run.event(
                "log_delayed", f"{path} cannot be written ({failure}); training continues"
            )
        self.failure = failure

    def finish(self) -> None:
        """Raise NotSaved if rows are missing."""
        if self.failure:
            raise NotSaved(
                f"rows are missing in {self.run.path / METRICS}, which could not be written "
                f"({self.failure}): checkpoints are not concerned"
            )

    def close(self) -> None:
        if self.file:
            self.file.close()


def _format(rows: Iterable[Row], names: list[str], with_header: bool = False) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="", extrasaction="ignore", lineterminator="\n")
    if with_header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
