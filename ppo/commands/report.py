"""Write a report of a run."""

from ppo.analysis.report import write_report
from ppo.commands.shared import PolicyCommand, check_folder, new_file
from ppo.config.config import run_folder
from ppo.config.flags import flag
from ppo.policy.policy import best_video
from ppo.run.checkpoint import find_checkpoint
from ppo.run.reader import read_run


class Report(PolicyCommand):
    """Report all of a run on one HTML page that needs nothing but a browser."""

    output: str | None = flag(
        None, "New .html file; none replaces report.html in the run's folder."
    )

    def __call__(self) -> None:
        """Raises ConfigError if it is no run or the page cannot be written, and as Evaluate
        does."""
        run = read_run(run_folder(self.run))
        policy = self.load(find_checkpoint(str(run.folder)))
        path = check_folder("--output=", run.folder / "report.html")
        if self.output:
            path = new_file("--output=", self.output, (".html",))
        write_report(run, best_video(run.folder, policy), path)
        print(f"page: {path}")
