"""Self-play: train against past versions of the policy, as examples/turn_based.py takes them.

python examples/self_play.py, or
python main.py --env_name=examples/turn_based.py:Game --callback=examples/self_play.py:SelfPlay
"""

from typing import Any

from ppo import Callback, train


class SelfPlay(Callback):
    """Save a version of the policy every few iterations; the last ones are the opponents.

    The environment has set_training(opponents=[...]), paths of policies; with none, it plays at
    random. No version is removed, since open episodes of a resumed run are played again.
    """

    def __init__(self, every: int = 10, num_opponents: int = 10, games: int = 200) -> None:
        self.every = every
        self.num_opponents = num_opponents
        self.games = games
        self.versions: list[int] = []  # iterations of saved policies

    def on_start(self, run: Any) -> None:
        self.set_opponents(run)  # the folder of a resumed run may have been moved

    def on_iteration(self, run: Any) -> None:
        if run.is_due(self.every):
            run.policy().save(self.path(run, run.iteration))
            self.versions.append(run.iteration)
            self.set_opponents(run)

    def on_end(self, run: Any) -> None:
        opponents = {"random play": []}
        if self.versions:
            opponents["its first version"] = [self.path(run, self.versions[0])]
        for name, paths in opponents.items():
            policy = run.policy()
            policy.env_attributes["opponents"] = paths
            result = policy.evaluate(self.games, num_envs=8)
            print(f"wins {result.env['success_rate']:.1%} of {self.games} games against {name}")

    def set_opponents(self, run: Any) -> None:
        run.set_env(opponents=[self.path(run, n) for n in self.versions[-self.num_opponents :]])

    def path(self, run: Any, version: int) -> str:
        return str(run.folder.path / "opponents" / f"{version:06d}.safetensors")

    def state_dict(self) -> dict[str, Any]:
        return {"versions": self.versions}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.versions = state["versions"]


if __name__ == "__main__":
    train("turn_based:Game", callbacks=[SelfPlay()], total_steps=300_000)
