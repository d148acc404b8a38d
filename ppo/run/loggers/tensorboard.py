"""Metrics for TensorBoard."""

from pathlib import Path
from typing import Any

from ppo.algorithm.learner import Histograms

BINS = 50


class TensorBoard:
    """Writes event files into a run's folder. first_step: what earlier files have from there on does not count."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # heavy

        self.writer: Any = SummaryWriter(str(folder), purge_step=first_step)

    def log(self, metrics: dict[str, Any], detail: Histograms | None) -> None:
        """An iteration's metrics, and sometimes more of it."""
        step = metrics["step"]
        for name, value in metrics.items():
            if value is not None:
                self.writer.add_scalar(name, value, step)
        if detail:
            for name, values in detail.values.items():
                self.writer.add_histogram(f"histograms/{name}", values, step, bins=BINS)
            if detail.image is not None:
                self.writer.add_image("frame", detail.image, step, dataformats="HW")

    def summarize(self, summary: dict[str, Any]) -> None:
        """What the run came to."""
        for name in ("mean", "std"):
            if summary["evaluation"][name] is not None:
                self.writer.add_scalar(
                    f"evaluation/{name}", summary["evaluation"][name], summary["steps"]
                )

    def close(self) -> None:
        self.writer.close()
