"""Metrics for Weights & Biases, sent by a thread, so that a slow service does not stop training."""

import json
from collections.abc import Callable
from queue import Queue
from threading import Thread
from typing import Any
from zlib import crc32

from ppo.algorithm.rollout import Metrics
from ppo.config.config import Config
from ppo.extras.loggers.flags import WandbFlags
from ppo.extras.loggers.names import rename
from ppo.run.checkpoint import LAST
from ppo.run.loggers.logger import Histograms, Logger
from ppo.run.summary import RunSummary
from ppo.system.signals import STOP

SECONDS_TO_FINISH = 15
MAX_WAITING_CALLS = 1000  # one per iteration


class WandbLogger(Logger):
    """Send metrics to Weights & Biases in order. A resumed run continues its run there.

    What the thread raises is raised by the next call, which drops this logger, as does a service
    that is MAX_WAITING_CALLS behind."""

    def __post_init__(self) -> None:
        self.calls: Queue[Callable[[Any], None] | None] = Queue(MAX_WAITING_CALLS)
        self.error: BaseException | None = None
        self.thread = Thread(target=self._work, daemon=True)
        self.thread.start()

    def log(self, metrics: Metrics, histograms: Histograms | None) -> None:
        def call(logged: Any) -> None:
            import wandb

            row = rename(self.config, metrics)
            if histograms:
                make: Any = wandb.Histogram
                row |= {f"histograms/{name}": make(x) for name, x in histograms.values.items()}
                if histograms.image is not None:
                    row["frame"] = wandb.Image(histograms.image)
            logged.log(row, step=metrics["step"])

        self.put(call)

    def summarize(self, summary: RunSummary) -> None:
        def call(logged: Any) -> None:
            import wandb

            logged.summary.update(summary.content())
            for path in sorted((self.run.path / "videos").glob("*.mp4")):
                logged.log({f"videos/{path.stem}": wandb.Video(str(path))})
            if WandbFlags.of(self.config).log_checkpoint:
                artifact = wandb.Artifact(f"checkpoint-{self.run.run_id}", type="model")
                path = self.run.path / "checkpoints" / LAST
                artifact.add_file(str(path), "checkpoint.safetensors")
                logged.log_artifact(artifact)

        self.put(call)

    def put(self, call: Callable[[Any], None] | None) -> None:
        """Let the thread call a function with wandb's run; None ends the thread."""
        if self.error:
            raise self.error
        if self.calls.full():
            raise TimeoutError("it does not keep up")
        self.calls.put(call)

    def close(self) -> None:
        """Wait until all is sent, at most SECONDS_TO_FINISH; after SIGTERM, the process may end
        sooner."""
        self.put(None)
        with STOP.finishing():
            self.thread.join(SECONDS_TO_FINISH)
        if self.error:
            raise self.error
        if self.thread.is_alive():
            raise TimeoutError("it did not finish in time")

    def _work(self) -> None:
        try:
            import wandb  # heavy

            settings = wandb.Settings(
                login_timeout=1,
                init_timeout=10,
                finish_timeout=SECONDS_TO_FINISH,
                finish_timeout_raises=False,
            )
            with wandb.init(settings=settings, **self._describe_run()) as logged:
                for call in iter(self.calls.get, None):
                    call(logged)
        except BaseException as error:  # wandb may raise one to end the process
            self.error = error

    def _describe_run(self) -> dict[str, Any]:
        """Return wandb.init's arguments. Runs with the same settings, apart from the seed and flags
        of scope "run", form a group."""
        config = self.config.__getstate__()
        alike = {name: config[name] for name in Config.names(scope="training") if name != "seed"}
        tags = [config[name] for name in ("env_name", "model", "preset") if name in config]
        flags = WandbFlags.of(self.config)
        tags += filter(None, (flags.wandb_tags or "").split(","))
        return {
            "config": config,
            "id": self.run.run_id,
            "resume": "allow",
            "name": self.run.path.name,
            "project": flags.wandb_project,
            "entity": flags.wandb_entity,
            "dir": self.run.path,
            "tags": [tag[:64] for tag in tags],
            "group": f"{config['env_name']}-{crc32(json.dumps(alike).encode()):08x}",
        }
