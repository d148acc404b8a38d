"""Write a callback: save the state after each evaluation that is better than the one before.

python main.py CartPole-v1 --callback=examples.own_callback:Snapshots --eval_every=10
"""

from typing import Any

from ppo import Callback
from ppo.policy import Evaluation
from ppo.run import Run


class Snapshots(Callback):
    """Save a checkpoint if the mean return rises, and log the shortest episode of evaluations."""

    def __init__(self) -> None:
        self.last = float("-inf")

    def on_evaluation(self, run: Run, result: Evaluation) -> None:
        if result.mean is None:  # the environment failed
            return
        if result.mean > self.last:
            run.save()
        self.last = result.mean
        run.log("evaluation_shortest_episode", min(result.lengths))

    def state_dict(self) -> dict[str, Any]:
        return {"last": self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.last = state["last"]
