"""Self-play at Connect Four: python -m benchmarks.self_play [--seeds=3] [--steps=300000]

Trains examples/turn_based.py with the callback of examples/self_play.py by the default flags of
discrete actions; then the most likely actions play 200 games against random play, and 200 against
the run's first version, which was saved after ten iterations. Each run is beside a short one whose
opponents play at random, to compare speeds, in environment steps per second from the end of the
first iteration to the end of the last. Writes results/self_play/README.md and self_play.json.
"""

import re
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import harness

GAME = f"{harness.QUIET} --env_name=examples/turn_based.py:Game"
SELF_PLAY = f"{GAME} --callback=examples/self_play.py:SelfPlay"
STEPS_AT_RANDOM = 61440
OPPONENTS = ("random play", "its first version")


def play_itself(seed: int, steps: int) -> harness.Result:
    """Train by self-play; return the share of games that are won, the speed and the seconds."""
    with tempfile.TemporaryDirectory() as folder, Path(folder, "output").open("w+") as output:
        flags = f"{SELF_PLAY} --seed={seed} --total_steps={steps}"
        run = harness.train_in(Path(folder, "run"), flags, stdout=output)
        output.seek(0)
        text = output.read()
    won = {}
    for name in OPPONENTS:
        (share,) = re.findall(rf"wins (.*)% of 200 games against {name}", text)
        won[name] = float(share) / 100
    return {"won": won, "speed": run.steps_per_second, "seconds": run.seconds}


def play_at_random(seed: int) -> harness.Result:
    """Train against random play; return the speed."""
    run = harness.train(f"{GAME} --seed={seed} --total_steps={STEPS_AT_RANDOM}")
    return {"speed": run.steps_per_second}


def main() -> None:
    given = harness.make_parser(__doc__, seeds=3, steps=300_000).parse_args()
    result = harness.describe()
    variants = {
        "self-play": lambda seed: play_itself(seed, given.steps),
        "random play": play_at_random,
    }
    runs = harness.alternate(variants, range(1, given.seeds + 1))
    result |= {"steps": given.steps, "runs": runs}
    rows = []
    for seed, run in enumerate(runs["self-play"], 1):
        won = " | ".join(f"{run['won'][name]:.1%}" for name in OPPONENTS)
        rows.append(f"{seed} | {won} | {run['seconds']:.0f}")
    table = harness.table(
        f"seed, {given.steps:,} steps | won against random play | against its first version | "
        "seconds, start and games included",
        rows,
    )
    speeds = [median(run["speed"] for run in runs[name]) for name in variants]
    speed = (
        f"Steps per second of training, medians: {speeds[0]:,.0f} by self-play, "
        f"{speeds[1]:,.0f} against random play."
    )
    harness.write_json("self_play/self_play.json", result)
    harness.write_page("self_play/README.md", __doc__, table, speed, result=result)


if __name__ == "__main__":
    main()
