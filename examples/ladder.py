"""Rate the versions of a self-play run: all of them play each other, and get Elo ratings.

That the last version beats the first says little, since strategies may beat each other in a circle.

python main.py examples.turn_based:Game --callback=examples.self_play:SelfPlay \
    --total_steps=300000 --run_dir=runs/game
python examples/ladder.py runs/game/opponents
"""

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy import ndarray

from ppo import load_policy

GAMES = 50  # of each pair


def play_all(paths: list[Path], games: int) -> ndarray:
    """Let all pairs of V policies play games; return their points (V, V), 1 for a win and 1/2 for
    a draw: row i has the points of policy i against each other one."""
    points = np.zeros((len(paths), len(paths)))
    for i, j in combinations(range(len(paths)), 2):
        policy = load_policy(paths[i])
        policy.env_attributes = {"opponents": [str(paths[j])]}
        result = policy.evaluate(games, stochastic=True)
        points[i, j] = games * (result.env["success_rate"] + result.env["drawn"] / 2)
        points[j, i] = games - points[i, j]
    return points


def elo_ratings(points: ndarray, num_rounds: int = 1000) -> ndarray:
    """Return the ratings (V,), of mean 0, under which points (V, V) are the most likely.

    A lead of 400 means winning ten times as often as losing (Elo 1978). This is the model of
    Bradley and Terry 1952, fitted by Hunter 2004, "MM algorithms for generalized Bradley-Terry
    models", eq. 3. Half a draw with everybody is added, so that all ratings are finite."""
    points = points + 0.25
    np.fill_diagonal(points, 0)
    games = points + points.T
    strengths = np.ones(len(points))
    for _ in range(num_rounds):
        strengths = points.sum(1) / (games / np.add.outer(strengths, strengths)).sum(1)
        strengths /= np.exp(np.log(strengths).mean())
    return 400 * np.log10(strengths)


def main(folder: str) -> None:
    paths = sorted(Path(folder).glob("*.safetensors"))
    points = play_all(paths, GAMES)
    print("version  Elo  share of points against each version")
    for path, rating, own in zip(paths, elo_ratings(points), points / GAMES, strict=True):
        print(path.stem, f"{rating:6.0f} ", *(f"{share:.2f}" for share in own))


if __name__ == "__main__":
    main(*sys.argv[1:])
