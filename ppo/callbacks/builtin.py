"""Callbacks of every run: checkpoints and evaluations."""

import time

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
