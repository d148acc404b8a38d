"""Log a metric of your own, and stop by it: the share of actions that are the same as before.

python main.py --env_name=CartPole-v1 --callback=examples.own_metric:Repetition \
    --stop_when='actions/repeated<0.3' --show=actions/repeated
"""

from typing import Any

from ppo import Callback


class Repetition(Callback):
    """Compare each action with the one before it."""

    def on_iteration(self, run: Any) -> None:
        actions = run.rollout.actions
        run.log("actions/repeated", float((actions[1:] == actions[:-1]).mean()))
