"""Weights & Biases at arm's length: it may be slow, fail or never answer, and training goes on."""

from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import Any

from ppo.config import Config
from ppo.run import RunFolder

SECONDS_TO_START, SECONDS_TO_FINISH = 10, 15
MOST_WAITING = 1000  # iterations


class WandbThread:
    """Hands metrics to Weights & Biases on a thread, in the order of their logging, from a bounded queue; what does not
    fit, or comes after a failure, is dropped and counted as a fault of the run. A run that is resumed goes on there."""

    def __init__(self, config: Config, run: RunFolder) -> None:
        self.config, self.run = config, run
        self.queue: Queue[Callable[[Any], None] | None] = Queue(MOST_WAITING)
        self.has_failed = Event()
        self.thread = Thread(target=self._work, daemon=True)
        self.thread.start()

    def put(self, call: Callable[[Any], None]) -> None:
        """Have call(wandb's run) made some time; never waits."""
        if not self.has_failed.is_set():
            try:
                self.queue.put_nowait(call)
                return
            except Full:
                pass
        self.run.event("log_dropped")

    def finish(self) -> None:
        """Let it end what is waiting, as far as it does in time."""
        if not self.has_failed.is_set():
            with suppress(Full):
                self.queue.put(None, timeout=SECONDS_TO_FINISH)
                self.thread.join(SECONDS_TO_FINISH)
            if self.thread.is_alive():
                self._fail("it did not finish in time")

    def _work(self) -> None:
        try:
            import wandb  # heavy

            limits: Any = {"init_timeout": SECONDS_TO_START, "login_timeout": 1, "finish_timeout": SECONDS_TO_FINISH}
            settings = wandb.Settings(**limits, finish_timeout_raises=False)
            about: Any = {"id": self.run.run_id, "resume": "allow", "name": self.run.path.name, "dir": self.run.path}
            with wandb.init(config=self.config.__getstate__(), settings=settings, **about) as logged:
                for call in iter(self.queue.get, None):
                    call(logged)
        except BaseException as error:  # wandb itself ends its process by some
            self._fail(" ".join(str(error).split()) or type(error).__name__)

    def _fail(self, reason: str) -> None:
        """Do without it from now on, and say so once."""
        if not self.has_failed.is_set():
            self.has_failed.set()
            self.run.event("wandb_failed", f"--logger=wandb: {reason}; training goes on without it, see metrics.csv")
