"""Environments of other packages: python -m benchmarks.third_party

Two iterations of main.py on one environment of each package, or the sentence by which main.py
refuses it. Then two of MiniGrid's tasks by default flags, three seeds each: the step after which
the last 100 episodes return more than 0.9 on average, which takes a success in nearly all of them,
and the share of successes in an evaluation of 100 episodes at the end. Needs the packages:
pip install minigrid highway-env gymnasium-robotics panda-gym shimmy "dm_control<1.0.28"
mo-gymnasium flappy-bird-gymnasium tetris-gymnasium gym-pusht rware popgym gym-anytrading. Writes
results/environments/third_party.md.
"""

import importlib.metadata
import shlex
from contextlib import suppress

from benchmarks import harness
from benchmarks.environments import SMALL, attempt_all

IDS = {
    "minigrid": "minigrid:MiniGrid-DoorKey-5x5-v0",
    "highway-env": "highway_env:highway-v0",
    "gymnasium-robotics": "gymnasium_robotics:FetchReach-v4",
    "panda-gym": "panda_gym:PandaReach-v3",
    "shimmy": "shimmy:dm_control/cartpole-balance-v0",
    "mo-gymnasium": "mo_gymnasium:mo-lunar-lander-v3",
    "flappy-bird-gymnasium": "flappy_bird_gymnasium:FlappyBird-v0",
    "tetris-gymnasium": "tetris_gymnasium.envs:tetris_gymnasium/Tetris",
    "gym-pusht": "gym_pusht:gym_pusht/PushT-v0",
    "rware": "rware:rware-tiny-2ag-v2",
    "popgym": "popgym:popgym-RepeatPreviousEasy-v0",
    "gym-anytrading": "gym_anytrading:stocks-v0",
}
TASKS = ("minigrid:MiniGrid-Empty-5x5-v0", "minigrid:MiniGrid-DoorKey-5x5-v0")
FLAGS = "--total_steps=200000 --eval_episodes=100 --report=False"
SEEDS = range(1, 4)


def learn(env_name: str) -> str:
    """Return a row of the table of learned tasks."""
    runs = [harness.train(f"--env_name={env_name} {FLAGS} --seed={seed}") for seed in SEEDS]
    steps = [first_step(run) for run in runs]
    returns = [run.summary["evaluation"]["returns"] for run in runs]
    success = [sum(x > 0 for x in found) / len(found) for found in returns]
    command = f"python main.py --env_name={env_name} {FLAGS} --seed=SEED"
    return f"`{command}` | {harness.each(steps, ',')} | {harness.each(success, '.2f')}"


def first_step(run: harness.Run) -> int:
    """Return the step after which the task is learned, or the last one."""
    for row in run.rows:
        if int(row["episodes"]) >= 100 and float(row["episode_return_mean"]) > 0.9:
            return int(row["step"])
    return run.summary["steps"]


def main() -> None:
    harness.make_parser(__doc__).parse_args()
    result = harness.describe()
    versions = {}
    for package in IDS:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    found = attempt_all([*IDS.values()], side_by_side=1)
    rows = [
        f"{package} {versions.get(package, '(not installed)')} | {name} | {found[name]}"
        for package, name in IDS.items()
    ]
    parts = [
        f"`{shlex.join(['python', 'main.py', '--env_name=ID'])} {SMALL}`:",
        harness.table("package | environment | result", rows),
        harness.table(
            "command | steps until 0.9, each seed | success in evaluation",
            [learn(name) for name in TASKS],
        ),
    ]
    harness.write_page("environments/third_party.md", __doc__, *parts, result=result)


if __name__ == "__main__":
    main()
