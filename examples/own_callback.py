"""Write a callback: keep a copy of the policy whenever an evaluation is better than the last one.

python main.py --env_name=CartPole-v1 --callback=examples.own_callback:Snapshots --eval_every=10
"""

from typing import Any

from ppo import Callback


class Snapshots(Callback):
    """Save a checkpoint after an evaluation that is better than the one before."""

    def __init__(self) -> None:
        self.last = float("-inf")  # which checkpoints hold, too

    def on_evaluation(self, run: Any, result: Any) -> None:
        if not result.episodes:  # the environment failed
            return
        if result.mean > self.last:
            run.save()
        self.last = result.mean
        run.log("evaluation/shortest_episode", min(result.lengths))

    def state_dict(self) -> dict[str, Any]:
        return {"last": self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.last = state["last"]
