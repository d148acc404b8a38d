"""The ladder of self-play: all versions of a run play each other, and each gets an Elo rating.

The versions are those that examples/self_play.py has saved in a run's folder. Whether the last one
beats the first says little, since strategies may beat each other in a circle; here every one plays
every other, in both seats, by random actions of its policy.

python main.py --env_name=examples/turn_based.py:Game --callback=examples/self_play.py:SelfPlay \
    --total_steps=300000 --run_dir=runs/game
python -m examples.ladder runs/game/opponents --games=50
"""

import argparse
import csv
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy import ndarray

from examples.turn_based import Game
from ppo import load_policy


def play_all(paths: list[Path], games: int) -> ndarray:
    """Let all pairs of V policies play games; return their points (V, V), 1 for a win and 1/2 for
    a draw: row i has what policy i won from each other."""
    points = np.zeros((len(paths), len(paths)))
    for i, j in combinations(range(len(paths)), 2):
        policy = load_policy(paths[i], Game)
        policy.env_attributes = {"opponents": [str(paths[j])]}
        result = policy.evaluate(games, deterministic=False, num_envs=8)
        points[i, j] = games * (result.env["success_rate"] + result.env["drawn"] / 2)
        points[j, i] = games - points[i, j]
    return points


def elo_ratings(points: ndarray, num_rounds: int = 1000) -> ndarray:
    """Return the ratings (V,), of mean 0, at which points (V, V) are the most likely.

    Who has 400 more wins 10 points for each that the other wins (Elo 1978): the model of Bradley
    and Terry 1952, fitted by Hunter 2004, "MM algorithms for generalized Bradley-Terry models",
    eq. 3. Half a draw with everybody is added, or who loses all games would be at minus infinity.
    """
    points = points + 0.25
    np.fill_diagonal(points, 0)
    games = points + points.T
    strengths = np.ones(len(points))
    for _ in range(num_rounds):
        strengths = points.sum(1) / (games / np.add.outer(strengths, strengths)).sum(1)
        strengths /= np.exp(np.log(strengths).mean())
    return 400 * np.log10(strengths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of saved policies, as runs/NAME/opponents")
    parser.add_argument("--games", type=int, default=50, help="of each pair")
    given = parser.parse_args()
    paths = sorted(given.folder.glob("*.safetensors"))
    if len(paths) < 2:
        parser.error(f"{given.folder} holds fewer than two policies: train by self-play first")
    points = play_all(paths, given.games)
    names = [path.stem.lstrip("0") for path in paths]
    header = ["version", "Elo", *(f"against {name}" for name in names)]
    rows = [
        [name, round(rating), *(f"{share:.2f}" for share in own / given.games)]
        for name, rating, own in zip(names, elo_ratings(points), points, strict=True)
    ]
    with (given.folder / "ladder.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    for row in [header, *rows]:
        print("  ".join(f"{value:>7}" for value in row))


if __name__ == "__main__":
    main()
