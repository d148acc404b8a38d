"""Write a logger: show a run in Trackio, which keeps its data on this machine, without an account.

pip install trackio
python main.py --env_name=CartPole-v1 --logger='examples.own_logger:Trackio(project="cartpole")'
trackio show
"""

from dataclasses import dataclass
from typing import Any

from ppo import Logger


@dataclass
class Trackio(Logger):
    """Log each iteration's metrics to a project; a resumed run goes on with its own curves."""

    project: str = "ppo"

    def __post_init__(self) -> None:
        try:
            import trackio  # heavy
        except ImportError as error:
            raise ImportError("trackio is missing, pip install trackio") from error
        self.tracker = trackio.init(
            self.project,
            name=self.run.path.name,
            config=self.config.__getstate__(),
            resume="allow",
        )

    def log(self, metrics: dict[str, Any], histograms: Any) -> None:
        known = {name: value for name, value in metrics.items() if value is not None}
        self.tracker.log(known, step=metrics["step"])

    def summarize(self, summary: Any) -> None:
        result = summary.evaluation
        if result.episodes:
            self.tracker.log({"evaluation_mean": result.mean}, step=summary.steps)

    def close(self) -> None:
        self.tracker.finish()
