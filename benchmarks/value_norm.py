"""Value normalisation: python -m benchmarks.value_norm [TASK ...] [--ways=WAY,...] [--seeds=5]
[--steps=0] [--episodes=100]

Trains each task by its tuned values, or those of its family, in several ways: with rewards
normalised (the default) or raw, each without --value_norm, with popart and with running. In two
tasks the environment's rewards are multiplied by 100 and by 0.01, which a policy that learns from
raw rewards should not notice. --steps: how many to train, 0 for those of the values.

Shown are returns in the environment's own unit, undiscounted, of --episodes evaluated after
training by the most likely actions: the interquartile mean of all seeds, its 95 % bootstrap
interval (Agarwal et al. 2021) and each seed's mean; and the mean return of the last 100 episodes of
training. A run per core at a time, each in the trainer's one process, in runs/value_norm/, where
one that was stopped is continued by the same command.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks import harness
from ppo.run.intervals import confidence_interval, interquartile_mean

FOLDER = harness.ROOT / "runs" / "value_norm"
RESULTS = "value_norm/value_norm.json"  # by task, way and steps
WRAPPER = "--wrapper='benchmarks.environments.reward_units:InUnits(factor={})'"
# Flags of each task, and the factor of its rewards.
TASKS = {
    "HalfCheetah-v5": ("--env_name=HalfCheetah-v5", 1.0),
    "Hopper-v5": ("--env_name=Hopper-v5", 1.0),
    "BipedalWalker-v3": ("--env_name=BipedalWalker-v3", 1.0),
    "LunarLander-v3-x100": (f"--env_name=LunarLander-v3 {WRAPPER.format(100)}", 100.0),
    "Pendulum-v1-x0.01": (f"--env_name=Pendulum-v1 {WRAPPER.format(0.01)}", 0.01),
}
RAW = "--normalize_rewards=False"
WAYS = {
    "default": "",
    "popart": "--value_norm=popart",
    "running": "--value_norm=running",
    "raw": RAW,
    "raw-popart": f"{RAW} --value_norm=popart",
    "raw-running": f"{RAW} --value_norm=running",
}
PLAIN = "--num_workers=0 --logger=none --report=False --resume=auto"


def flags_of(task: str, way: str, steps: int) -> str:
    """Return the flags of a task's runs in one way, but for the seed."""
    flags = f"{TASKS[task][0]} {WAYS[way]}".strip()
    return f"{flags} --total_steps={steps}" if steps else flags


def train(task: str, way: str, steps: int, episodes: int, seed: int) -> harness.Result:
    """Train one seed, or continue it; return what is kept of it."""
    folder = FOLDER / f"{task}-{way}-{steps}-s{seed}"
    flags = f"{flags_of(task, way, steps)} --seed={seed} --eval_episodes={episodes} {PLAIN}"
    summary = harness.train_in(folder, flags).summary
    unit = TASKS[task][1]
    return {
        "seed": seed,
        "steps": summary["steps"],
        "evaluation": summary["evaluation"]["mean"] / unit,
        "last_100": summary["mean_return"] / unit,
    }


def show(results: dict[str, harness.Result]) -> str:
    """Write a table of all results."""
    rows = []
    for result in results.values():
        runs = result["runs"]
        evaluations = np.array([run["evaluation"] for run in runs])
        interval = confidence_interval(evaluations, interquartile_mean)
        between = "" if interval is None else " [{:,.1f}, {:,.1f}]".format(*interval)
        cells = [
            result["task"],
            result["way"],
            f"{runs[0]['steps']:,}",
            f"{interquartile_mean(evaluations):,.1f}{between}",
            harness.each(evaluations, ",.1f"),
            f"{interquartile_mean(np.array([run['last_100'] for run in runs])):,.1f}",
            f"`python main.py {result['flags']}`",
            str(result["commit"]),
        ]
        rows.append(" | ".join(cells))
    head = "task | way | steps | evaluation | each seed | last 100 | command | commit"
    return harness.table(head, rows)


def main() -> None:
    parser = harness.make_parser(__doc__, ways=",".join(WAYS), seeds=5, steps=0, episodes=100)
    names = f"of {', '.join(TASKS)}"
    parser.add_argument("tasks", nargs="*", default=list(TASKS), metavar="TASK", help=names)
    given = parser.parse_args()
    ways = given.ways.split(",")
    for kind, chosen, known in (("", given.tasks, TASKS), ("--ways: ", ways, WAYS)):
        if unknown := {*chosen} - known.keys():
            parser.error(f"{kind}give some of {', '.join(known)}, not {', '.join(sorted(unknown))}")
    seeds = range(1, given.seeds + 1)
    with ThreadPoolExecutor(harness.num_cores()) as threads:
        waiting = {
            (task, way): [
                threads.submit(train, task, way, given.steps, given.episodes, seed)
                for seed in seeds
            ]
            for task in given.tasks
            for way in ways
        }
        for (task, way), jobs in waiting.items():
            flags = flags_of(task, way, given.steps)
            runs = [job.result() for job in jobs]
            result = {"task": task, "way": way, "flags": flags, **harness.describe(), "runs": runs}
            name = f"{task}-{way}-{given.steps}"
            harness.write_json(RESULTS, {**harness.read_json(RESULTS), name: result})
            print(f"{name}: {[run['evaluation'] for run in runs]}", flush=True)
    harness.write_page("value_norm/README.md", __doc__, show(harness.read_json(RESULTS)))


if __name__ == "__main__":
    main()
