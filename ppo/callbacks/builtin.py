"""Callbacks of every run: checkpoints, evaluations, videos and the report."""

import time
from pkgutil import resolve_name

from ppo.callbacks.base import Callback, Run

EVALUATION = "evaluation_return_mean"
MAX_SECONDS = 600  # without a checkpoint: what a power failure costs where iterations are long


class RegularCheckpoints(Callback):
    """Save a checkpoint every --checkpoint_every and every --keep_every iterations, and MAX_SECONDS
    after the last."""

    def __init__(self) -> None:
        self.last_time = time.monotonic()

    def on_iteration(self, run: Run) -> None:
        is_late = time.monotonic() - self.last_time >= MAX_SECONDS
        config = run.config
        if is_late or run.is_due(config.checkpoint_every) or run.is_due(config.keep_every):
            run.save()

    def on_checkpoint(self, run: Run) -> None:
        self.last_time = time.monotonic()


class RegularEvaluations(Callback):
    """Evaluate the policy every --eval_every iterations."""

    def on_iteration(self, run: Run) -> None:
        if run.config.eval_every:
            is_due = run.is_due(run.config.eval_every)
            run.log(EVALUATION, run.evaluate().mean if is_due else None)


class Videos(Callback):
    """Film an episode of the policy every --video_every iterations; a failure ends nothing."""

    def on_iteration(self, run: Run) -> None:
        if run.is_due(run.config.video_every):
            path = run.folder.path / "videos" / f"{run.step}.mp4"
            try:
                path.unlink(missing_ok=True)  # made before a run was resumed from an earlier state
                policy = run.policy()
                policy.isolated("the video", policy.evaluate, 1, video=path)
            except Exception as error:
                run.folder.event(
                    "video_failed", f"{path} cannot be made: {error}; training continues"
                )


class Report(Callback):
    """Write curve.png and report.html at the end, by ppo.tools; a failure ends nothing."""

    def on_end(self, run: Run) -> None:
        if run.config.report and run.iteration:
            try:
                report_run = resolve_name("ppo.tools.report:report_run")
                report_run(run.folder.path)
            except Exception as error:
                run.folder.event("report_failed", f"the report is not complete: {error}")
