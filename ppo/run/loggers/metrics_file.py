"""metrics.csv: a row for each iteration."""

import csv
import io
from collections.abc import Sequence

from ppo.errors import SaveFailed
from ppo.run.folder import RunFolder
from ppo.run.reader import METRICS, Row
from ppo.system.files import AppendedFile, atomic_write, open_regular


class MetricsFile:
    """Append rows to a run's metrics.csv, without buffering.

    rows: of a resumed run, as read_rows returns them; the first write replaces the file by these
    and the new row. A new name becomes the last column, empty in earlier rows: the file is replaced
    as a whole. Rows that cannot be written, as on a full disk, stay in memory until the next write.
    """

    def __init__(self, run: RunFolder, rows: Sequence[Row]) -> None:
        self.run = run
        self.path = run.path / METRICS
        self.rows = list(rows)  # still to be written
        self.names = dict.fromkeys(rows[0] if rows else ())
        self.num_columns = 0  # in the file
        self.file: AppendedFile | None = None
        self.failure: OSError | None = None

    def write(self, metrics: Row) -> None:
        """Write a row, with floats to six significant digits. A failure becomes an event."""
        row = {name: f"{x:.6g}" if isinstance(x, float) else x for name, x in metrics.items()}
        self.rows.append(row)
        self.names |= dict.fromkeys(row)
        failure = None
        try:
            if self.file is None or len(self.names) > self.num_columns:
                self._replace()
            else:
                failure = self.file.append(self._format())
            self.rows.clear()
        except OSError as error:
            failure = error
        if failure and not self.failure:
            self.run.event(
                "log_delayed", f"{self.path} cannot be written ({failure}); training continues"
            )
        self.failure = failure

    def finish(self) -> None:
        """Raise SaveFailed if rows are missing."""
        if self.failure:
            raise SaveFailed(
                f"rows are missing in {self.path}, which could not be written "
                f"({self.failure}): checkpoints are not affected"
            )

    def close(self) -> None:
        if self.file:
            self.file.close()

    def _replace(self) -> None:
        """Write the file anew, with all columns and the waiting rows. Raises OSError."""
        text = ",".join(self.names) + "\n"
        if self.file:
            with open_regular(self.path) as before:
                written = before.read().decode(errors="replace") + self.file.waiting.decode()
            ending = "," * (len(self.names) - self.num_columns) + "\n"
            text += written.partition("\n")[2].replace("\n", ending)
        with atomic_write(self.path) as temporary:
            temporary.write_text(text + self._format())
            file = AppendedFile(temporary)  # stays open when the file is renamed
        self.close()
        self.file = file
        self.num_columns = len(self.names)

    def _format(self) -> str:
        """Return the waiting rows as lines of CSV."""
        text = io.StringIO()
        csv.DictWriter(text, self.names, lineterminator="\n").writerows(self.rows)
        return text.getvalue()
