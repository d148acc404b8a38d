"""Weights & Biases at arm's length: it may be slow, fail or never answer, and training goes on."""

import json
from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import Any
from zlib import crc32

from ppo.algorithm.learner import Histograms
from ppo.config.config import ELSEWHERE, Config
from ppo.run.checkpoint import LAST
from ppo.run.folder import RunFolder

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

    def log(self, metrics: dict[str, Any], detail: Histograms | None) -> None:
        """An iteration's metrics, and sometimes more of it."""

        def call(run: Any) -> None:
            import wandb

            histogram: Any = wandb.Histogram
            values = detail.values.items() if detail else ()
            more: dict[str, Any] = {f"histograms/{name}": histogram(x) for name, x in values}
            if detail and detail.image is not None:
                more["frame"] = wandb.Image(detail.image)
            run.log({**metrics, **more}, step=metrics["step"])

        self.put(call)

    def summarize(self, summary: dict[str, Any]) -> None:
        """What the run came to, with its videos, and its checkpoint if asked to."""

        def call(run: Any) -> None:
            import wandb

            run.summary.update(summary)
            for path in sorted((self.run.path / "videos").glob("*.mp4")):
                run.log({f"videos/{path.stem}": wandb.Video(str(path))})
            if self.config.log_checkpoint:
                artifact = wandb.Artifact(f"checkpoint-{self.run.run_id}", type="model")
                artifact.add_file(
                    str(self.run.path / "checkpoints" / LAST), "checkpoint.safetensors"
                )
                run.log_artifact(artifact)

        self.put(call)

    def put(self, call: Callable[[Any], None]) -> None:
        """Have call(wandb's run) made some time; never waits."""
        if not self.has_failed.is_set():
            try:
                self.queue.put_nowait(call)
                return
            except Full:
                pass
        self.run.event("log_dropped")

    def close(self) -> None:
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

            limits: Any = {
                "init_timeout": SECONDS_TO_START,
                "login_timeout": 1,
                "finish_timeout": SECONDS_TO_FINISH,
            }
            settings = wandb.Settings(**limits, finish_timeout_raises=False)
            about: Any = {
                "id": self.run.run_id,
                "resume": "allow",
                "name": self.run.path.name,
                "dir": self.run.path,
            }
            config = self.config.__getstate__()
            about["tags"] = [
                str(config[name])[:64] for name in ("env_name", "model", "preset")
            ]  # no longer ones
            alike = {
                name: value for name, value in config.items() if name not in ("seed", *ELSEWHERE)
            }
            about["group"] = (
                f"{config['env_name']}-{crc32(json.dumps(alike).encode()):08x}"  # of all its seeds
            )
            with wandb.init(config=config, settings=settings, **about) as logged:
                for call in iter(self.queue.get, None):
                    call(logged)
        except BaseException as error:  # wandb itself ends its process by some
            self._fail(" ".join(str(error).split()) or type(error).__name__)

    def _fail(self, reason: str) -> None:
        """Do without it from now on, and say so once."""
        if not self.has_failed.is_set():
            self.has_failed.set()
            self.run.event(
                "wandb_failed",
                f"--logger=wandb: {reason}; training goes on without it, see metrics.csv",
            )
