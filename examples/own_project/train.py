"""Train on an environment of your own, with a curriculum, and a network of your own.

cd examples/own_project
python train.py
"""

import sys
from typing import Any

from envs.my_env import Reach

from ppo import Callback, load_policy, train
from ppo.run import Run

FIRST_PORT = 9000


class Curriculum(Callback):
    """Raise the level at a success rate of 0.8; end the run at 0.9 on the second level."""

    def __init__(self) -> None:
        self.raised_after: int | None = None  # episodes

    def on_iteration(self, run: Run) -> None:
        run.log("level", 1 if self.raised_after is None else 2)
        episodes = run.metrics["episodes"]
        success = run.metrics.get("env/success_rate")
        if success is None or episodes < 100 + (self.raised_after or 0):
            return
        if self.raised_after is None and success > 0.8:
            self.raised_after = episodes
            run.set_env(level=2)
        elif self.raised_after is not None and success > 0.9:
            run.stop(f"success rate {success:.2f}")

    def state_dict(self) -> dict[str, Any]:
        return {"raised_after": self.raised_after}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.raised_after = state["raised_after"]


def main(total_steps: int = 300_000) -> None:
    summary = train(
        lambda index: Reach(port=FIRST_PORT + index),  # a separate port for each environment
        model="models.critic:WideCritic",
        callbacks=[Curriculum()],
        total_steps=total_steps,
        learning_rate=1e-3,
        name="reach",
    )
    print(summary.steps, "steps:", summary.reason or "all of them")
    policy = load_policy(summary.folder, Reach)
    print("success:", policy.evaluate(episodes=20).env["success_rate"])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
