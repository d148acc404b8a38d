"""Seconds until an environment is solved: python -m benchmarks.solve [--envs=CartPole-v1]
[--seeds=5] [--sb3=SEEDS] [--limit=1800] [--flags="--name=value ..."] [--quick]

From the command that a user would give, with the tuned preset, to its end. A callback
(benchmarks/parts/callbacks.py) ends the run when it is solved: the mean return of 100 deterministic
episodes reaches the environment's own reward_threshold (Pong: 18). A run that is not solved within
the steps of its preset is "unsolved", and counts as longer than any other in the median.

--sb3: with so many of the seeds, in turn, also PPO of Stable-Baselines3 with the values that
RL-Baselines3-Zoo has tuned, until the same is reached or for --limit seconds. The machine should
have nothing else to do. Writes results/solve.md."""

import math
import time
from functools import partial
from statistics import median

from benchmarks import harness
from benchmarks.parts import zoo

NAME = "solve"
THRESHOLDS = {
    "CartPole-v1": 475.0,
    "Acrobot-v1": -100.0,
    "MountainCar-v0": -110.0,
    "LunarLander-v3": 200.0,
    "BipedalWalker-v3": 300.0,
    "PongNoFrameskip-v4": 18.0,
}
CALLBACK = "benchmarks.parts.callbacks:Solved"


def solve(env_name: str, more: harness.Flags, seed: int) -> harness.Result:
    callback = f"{CALLBACK}(threshold={THRESHOLDS[env_name]})"
    flags = {**harness.QUIET, "env_name": env_name, "callback": callback, "seed": seed, **more}
    run = harness.train(flags)
    return {
        "seconds": run.seconds,
        "steps": run.summary["steps"],
        "evaluation": run.evaluations[-1]["mean"] if run.evaluations else None,
        "reason": run.summary["reason"],
    }


def solve_by_sb3(env_name: str, limit: float, seed: int) -> harness.Result:
    begin = time.perf_counter()
    options = (env_name, seed, None, THRESHOLDS[env_name], limit)
    found: harness.Result = harness.in_fresh_process(zoo.train, *options)
    return {**found, "seconds": time.perf_counter() - begin, "limit": limit}


def seconds_of(run: harness.Result) -> float:
    return float(run["seconds"]) if run["reason"] == "solved" else math.inf


def show_seconds(run: harness.Result) -> str:
    if run["reason"] == "limit":
        return f"> {run['limit']:,.0f}"
    return f"{run['seconds']:,.1f}" if run["reason"] else "unsolved"


def show(results: harness.Result) -> str:
    rows = []
    for name, result in results.items():
        for who, runs in result["runs"].items():
            middle = sorted(runs, key=seconds_of)[(len(runs) - 1) // 2]
            cells = [name, who, show_seconds(middle), ", ".join(map(show_seconds, runs))]
            cells.append(f"{median(run['steps'] for run in runs):,.0f}")
            cells.append(harness.each(x["evaluation"] for x in runs if x["evaluation"] is not None))
            rows.append(" | ".join(cells))
    return harness.table("environment | by | seconds | each | steps | evaluation", rows)


def main() -> None:
    parser = harness.make_parser(__doc__, envs="", seeds=5, sb3=0, limit=1800.0, flags="")
    given = parser.parse_args()
    names = harness.chosen(parser, given.envs, THRESHOLDS)
    if given.quick:
        names, given.seeds, given.sb3 = ["CartPole-v1"], 1, min(1, given.sb3)
    more = harness.parse_flags(given.flags)
    results = {} if given.quick else harness.read(NAME)
    for name in names:
        about = harness.describe(*["stable-baselines3"] * bool(given.sb3))
        ways = {"ours": partial(solve, name, more)}
        both = {**ways, "SB3": partial(solve_by_sb3, name, given.limit)}
        runs = harness.alternate(both, range(given.sb3), name)
        rest = range(given.sb3, given.seeds)
        runs["ours"] += harness.alternate(ways, rest, name)["ours"]
        results[name] = {**about, "runs": {who: x for who, x in runs.items() if x}}
        if not given.quick:
            harness.write(NAME, __doc__, results, show(results))
    print(f"\n{show(results)}")


if __name__ == "__main__":
    main()
