"""Metrics for TensorBoard."""

from ppo.algorithm.rollout import Metrics
from ppo.extras.loggers.names import rename
from ppo.run.loggers.logger import Histograms, Logger
from ppo.run.summary import RunSummary
from ppo.system.imports import extra


class TensorBoardLogger(Logger):
    """Write event files to the run's folder. Events of earlier files after first_step, from which a
    resumed run continues, are not shown."""

    def __post_init__(self) -> None:
        with extra("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter  # heavy

        self.writer = SummaryWriter(str(self.run.path), purge_step=self.first_step + 1)

    def log(self, metrics: Metrics, histograms: Histograms | None) -> None:
        step = metrics["step"]
        for name, value in rename(self.config, metrics).items():
            if value is not None:
                self.writer.add_scalar(name, value, step)
        if histograms:
            for name, values in histograms.values.items():
                self.writer.add_histogram(f"histograms/{name}", values, step, bins=50)
            if histograms.image is not None:
                self.writer.add_image("frame", histograms.image, step, dataformats="HWC")

    def summarize(self, summary: RunSummary) -> None:
        evaluation = summary.evaluation
        if evaluation.episodes:
            self.writer.add_scalar("eval/mean", evaluation.mean, summary.steps)
            self.writer.add_scalar("eval/std", evaluation.std, summary.steps)

    def close(self) -> None:
        self.writer.close()
