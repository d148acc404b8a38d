"""Write a report of runs."""

from ppo.analysis.report import write_report
from ppo.commands.shared import check_folder, new_file
from ppo.config.config import run_folder
from ppo.config.flags import Flags, flag
from ppo.run.reader import read_run


class Report(Flags):
    """Report all of a run, or compare several, on an HTML page that needs nothing but a browser."""

    runs: list[str] = flag((), "The folders of runs, or their names in runs/.", nargs="+")
    output: str | None = flag(
        None,
        "New .html file; none replaces report.html in the run's folder, or is comparison.html for "
        "several.",
    )

    def __call__(self) -> None:
        """Write the page. Raises ConfigError for a folder that is no run or a file that is
        unsuitable, OSError if writing fails."""
        runs = [read_run(run_folder(name)) for name in self.runs]
        output = self.output or ("comparison.html" if len(runs) > 1 else None)
        if output:
            path = new_file("--output=", output, (".html",))
        else:
            path = check_folder("--output=", runs[0].folder / "report.html")
        write_report(runs, path)
        print(f"page: {path}")
