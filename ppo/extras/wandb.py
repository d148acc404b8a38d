"""Weights & Biases: --logger=wandb."""

import os

import wandb

from ppo.loggers import Logger
from ppo.policy import Evaluation
from ppo.rollout import Metrics
from ppo.run import Run


class WeightsAndBiases(Logger):
    """Log to Weights & Biases, under the name of the run's folder, and the folder's around it if
    that is not runs/. Its id has the time of the folder's lock, as names recur."""

    def on_start(self, run: Run) -> None:
        path = run.folder.path
        name = path.name
        if path.parent.name != "runs":
            name = f"{path.parent.name}-{name}"
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ppo"),
            name=name,
            id=os.environ.get("WANDB_RUN_ID", f"{name}-{(path / 'lock').stat().st_mtime_ns}"),
            resume="allow",
            dir=str(path),
            config=run.config.to_json(),
            settings=wandb.Settings(silent=True),
        )

    def on_iteration(self, run: Run) -> None:
        values: Metrics = {}
        for name, value in run.metrics.items():
            if value is not None:
                values[name] = value
        returns = run.episodes.returns
        if returns and run.is_due(10):
            values["episode_returns"] = wandb.Histogram(returns)
        self.run.log(values, step=run.step)

    def on_evaluation(self, run: Run, result: Evaluation) -> None:
        if result.mean is not None:
            self.run.summary["evaluation_return_mean"] = result.mean

    def on_end(self, run: Run) -> None:
        self.run.finish()
