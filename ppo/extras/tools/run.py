"""What tools do in a run: several seeds in place of one, and a report at the end."""

import gc

from ppo.callbacks.base import Callback, Run
from ppo.components import Components
from ppo.config.flags import Settings
from ppo.config.settings import RunSettings
from ppo.errors import ConfigError
from ppo.extras.tools.flags import ReportFlags, SeedsFlags
from ppo.guard import guard


def launch(given: Settings, settings: RunSettings) -> bool:
    """Train with several seeds if --seeds asks for them; return whether it does. Raises as
    train_seeds."""
    if SeedsFlags.of(settings.config).seeds == 1:
        return False
    from ppo.extras.tools.seeds import train_seeds

    gc.enable()
    guard().close()
    train_seeds(given, settings.given, int(settings.config.num_workers))
    return True


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
