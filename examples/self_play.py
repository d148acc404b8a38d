"""Train by self-play: the opponents are past versions of the policy (see turn_based.py).

python main.py examples.turn_based:Game --callback=examples.self_play:SelfPlay --total_steps=300000
"""

from typing import Any

from ppo import Callback
from ppo.run import Run


class SelfPlay(Callback):
    """Save a version of the policy at the start, every few iterations and at the end; the latest
    ones are the opponents.

    The environment defines set_training(opponents=[paths]). No version is deleted, since a resumed
    run replays its unfinished episodes."""

    def __init__(self, every: int = 10, num_opponents: int = 10, games: int = 100) -> None:
        self.every = every
        self.num_opponents = num_opponents
        self.games = games
        self.versions: list[int] = []  # iterations of saved policies

    def on_start(self, run: Run) -> None:
        if self.versions:
            self.set_opponents(run)  # the folder of a resumed run may have been moved
        else:
            self.save(run)

    def on_iteration(self, run: Run) -> None:
        if run.is_due(self.every):
            self.save(run)

    def on_end(self, run: Run) -> None:
        if run.iteration not in self.versions:
            self.save(run)
        policy = run.policy()
        policy.env_attributes = {"opponents": [self.path(run, self.versions[0])]}
        result = policy.evaluate(self.games, stochastic=True)
        wins = result.env["success_rate"]
        print(f"wins {wins:.1%} of {self.games} games against its first version")

    def save(self, run: Run) -> None:
        (run.folder.path / "opponents").mkdir(exist_ok=True)
        run.policy().save(self.path(run, run.iteration))
        self.versions.append(run.iteration)
        self.set_opponents(run)

    def set_opponents(self, run: Run) -> None:
        run.set_env(opponents=[self.path(run, x) for x in self.versions[-self.num_opponents :]])

    def path(self, run: Run, version: int) -> str:
        return str(run.folder.path / "opponents" / f"{version:06d}.safetensors")

    def state_dict(self) -> dict[str, Any]:
        return {"versions": self.versions}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.versions = state["versions"]
