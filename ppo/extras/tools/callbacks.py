"""What tools do in a run: its report at the end."""

from ppo.callbacks.base import Callback, Run
from ppo.components import Components
from ppo.errors import ConfigError
from ppo.extras.tools.flags import ReportFlags, SeedsFlags


def make_callbacks(parts: Components) -> list[Callback]:
    """Return the report's callback. Raises ConfigError for --seeds, which the command line alone
    obeys."""
    if (seeds := SeedsFlags.of(parts.config).seeds) > 1:
        raise ConfigError(
            f"--seeds={seeds} is for the command line: from Python call train for each seed"
        )
    return [Report()]


class Report(Callback):
    """Write curve.png and report.html at the end; a failure ends nothing."""

    is_late = True

    def on_end(self, run: Run) -> None:
        if ReportFlags.of(run.config).report and run.iteration:
            try:
                from ppo.extras.tools.report import report_run  # heavy

                report_run(run.folder.path)
            except Exception as error:
                run.folder.event("report_failed", f"the report is not complete: {error}")
