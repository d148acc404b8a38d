"""Log a metric of your own, and stop training by it: how often an action repeats the last one.

python main.py CartPole-v1 --callback='examples.own_metric:Repetition(least=0.3)'
"""

from ppo import Callback
from ppo.run import Run


class Repetition(Callback):
    """Compare each action with the one before it; end the run when few are the same."""

    def __init__(self, least: float = 0.0) -> None:
        self.least = least

    def on_iteration(self, run: Run) -> None:
        actions = run.rollout.actions  # (T, N, D)
        repeated = float((actions[1:] == actions[:-1]).mean())
        run.log("repeated_actions", repeated)
        if repeated < self.least:
            run.stop(f"only {repeated:.1%} of actions are repeated")
