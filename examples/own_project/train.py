"""Train on an environment of one's own, make it harder on the way, then change its reward.

cd examples/own_project && python train.py
"""

import sys
from typing import Any

from envs.my_env import Reach

from ppo import Callback, Config, RunSummary, load_policy, train

FIRST_PORT = 9000


class Curriculum(Callback):
    """Raise the level at a success rate of 0.8; end the run at 0.9 on the second level."""

    def __init__(self) -> None:
        self.raised_after: int | None = None  # episodes

    def on_iteration(self, run: Any) -> None:
        episodes = run.metrics["episodes"]
        success = run.metrics.get("env/success_rate")
        run.log("level", 1 if self.raised_after is None else 2)
        if success is None or episodes < 100 + (self.raised_after or 0):
            return
        if self.raised_after is None and success > 0.8:
            self.raised_after = episodes
            run.set_env(level=2)
        elif self.raised_after is not None and success > 0.9:
            run.stop(f"success rate {success:.2f}")

    def state_dict(self) -> RunSummary:
        return {"raised_after": self.raised_after}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.raised_after = state["raised_after"]


def learn(folder: str) -> RunSummary:
    """Learn both levels; every environment has a port of its own."""
    config = Config(
        total_steps=300_000,
        learning_rate=1e-3,
        best_by="env/success_rate",
        show="env/success_rate,level",
        max_time="10m",
        run_dir=folder,
    )
    return train(lambda index: Reach(port=FIRST_PORT + index), config, callbacks=[Curriculum()])


def fine_tune(folder: str, checkpoint: str) -> RunSummary:
    """Learn from there to use less force."""
    config = Config(
        env_kwargs={"effort": 0.3, "level": 2},
        total_steps=300_000,
        learning_rate=1e-3,
        init_from=checkpoint,
        stop_when="episode_return_mean>2.5",
        run_dir=folder,
    )
    return train(Reach, config)


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "runs/reach"
    learned = learn(f"{where}/learned")
    tuned = fine_tune(f"{where}/tuned", learned.checkpoint)
    print(learned.steps, "steps, then", tuned.steps, "more for the changed reward")
    policy = load_policy(tuned.checkpoint, Reach)
    print("success:", policy.evaluate(episodes=20).env["success_rate"])
