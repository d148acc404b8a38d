"""TensorBoard: --logger=tensorboard."""

import numpy as np
from torch.utils.tensorboard import SummaryWriter

from ppo.loggers import Logger
from ppo.run import Run


class TensorBoard(Logger):
    """Write scalars for TensorBoard to the run's folder, and a histogram of episode returns."""

    def on_start(self, run: Run) -> None:
        folder = str(run.folder.path)
        self.writer = SummaryWriter(folder, purge_step=run.step + 1)

    def on_iteration(self, run: Run) -> None:
        step = run.step
        for name, value in run.metrics.items():
            if value is not None:
                self.writer.add_scalar(name, value, step)
        returns = np.array(run.episodes.returns)
        if returns.size and run.is_due(10):
            self.writer.add_histogram("episode_returns", returns, step)

    def on_checkpoint(self, run: Run) -> None:
        self.writer.flush()

    def on_end(self, run: Run) -> None:
        self.writer.close()
