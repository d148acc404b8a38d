"""Beside Stable-Baselines3 with the zoo's values: python -m benchmarks.learning --sb3=3

Stable-Baselines3's PPO by the values of RL-Baselines3-Zoo (benchmarks/zoo.py) after as many steps
as ours, rounded up to whole rollouts; by the same runs, at the moment when they had been trained
for as many seconds as ours were in the median, how many steps they had come to, and the mean return
of their last 100 episodes until then. Each run has a process and a thread, one run per core at a
time, as ours. Evaluations are interquartile means over all seeds, of 100 deterministic episodes
with frozen statistics; returns of the last 100 episodes are interquartile means, too; seconds and
steps are medians. The ratio is that of the seconds, theirs to ours, for as many steps. Seconds of
ours are those of the table above: compare them only if both were measured on the same machine.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from statistics import median

import numpy as np

from benchmarks import harness, zoo
from ppo.run.statistics import interquartile_mean

SB3 = "sb3-"  # the first letters of the files
# The runs of ours beside which the zoo's values are trained, the longest first.
RUNS = {
    "BipedalWalker-v3": "BipedalWalker-v3",
    "HalfCheetah-v5": "HalfCheetah-v5-by-family",
    "Hopper-v5": "Hopper-v5",
    "LunarLander-v3": "LunarLander-v3",
    "Acrobot-v1": "Acrobot-v1",
}
POINTS = 50  # of a curve in the results
Point = Sequence[float | None]  # step, seconds, mean return of the last 100 episodes


def read() -> dict[str, harness.Result]:
    """Read the results by environment."""
    found = harness.read_all("learning")
    return {env_name: found[SB3 + env_name] for env_name in RUNS if SB3 + env_name in found}


def train_all(runs: Sequence[str], ours: dict[str, harness.Result], seeds: Sequence[int]) -> None:
    """Train the environments of those runs of ours, one per core at a time. Each run that ends is
    written at once; one that is there is not made again. Raises SystemExit without ours."""
    results = read()
    env_names = [env_name for env_name, run in RUNS.items() if run in runs]
    if missing := {RUNS[env_name] for env_name in env_names} - ours.keys():
        raise SystemExit(f"train {', '.join(sorted(missing))} by ours first")
    about = harness.describe("stable-baselines3")
    threads = ThreadPoolExecutor(harness.num_cores())
    try:
        jobs = {}
        for env_name in env_names:
            result = results.setdefault(env_name, {"runs": []})
            there = {run["seed"] for run in result["runs"]}
            for seed in sorted({*seeds} - there):
                job = threads.submit(train, env_name, seed, ours[RUNS[env_name]]["runs"])
                jobs[job] = env_name
        for job in as_completed(jobs):
            env_name = jobs[job]
            found = [*results[env_name]["runs"], {**job.result(), "measured": about}]
            found.sort(key=lambda run: run["seed"])
            results[env_name] = {"zoo": zoo.ZOO[env_name], "runs": found}
            harness.write_json(f"learning/{SB3}{env_name}.json", results[env_name])
            print(f"{SB3}{env_name}: {[run['evaluation'] for run in found]}", flush=True)
    finally:
        threads.shutdown(cancel_futures=True)


def train(env_name: str, seed: int, ours: Sequence[harness.Result]) -> harness.Result:
    """Train for as many steps as ours; note where it was after as many seconds as their median."""
    steps = ours[0]["steps"]
    seconds = median(run["seconds"] for run in ours)
    found = zoo.train(env_name, seed, total_steps=steps, num_threads=1)
    curve = found.pop("curve")
    kept = {round(index * (len(curve) - 1) / POINTS) for index in range(POINTS + 1)}
    step, _, mean_return = at(curve, seconds)
    then = {"seconds": seconds, "steps": step, "mean_return": mean_return}
    return {**found, "at_equal_seconds": then, "curve": [curve[index] for index in sorted(kept)]}


def at(curve: Sequence[Point], seconds: float) -> Point:
    """Return the last point of a curve until then, or its first one."""
    before = [point for point in curve if point[1] <= seconds]
    return before[-1] if before else curve[0]


def show(ours: dict[str, harness.Result], theirs: dict[str, harness.Result]) -> list[str]:
    """Write a heading, an explanation, a table and the machines, if there are results."""
    rows = []
    machines = []
    for env_name, result in theirs.items():
        if RUNS[env_name] not in ours:
            continue
        own, runs = ours[RUNS[env_name]], result["runs"]
        then = [run["at_equal_seconds"] for run in runs]
        ratio = seconds_of(runs) / seconds_of(own["runs"])
        cells = [RUNS[env_name], *cells_of(own["runs"]), *cells_of(runs)]
        cells += [typical(run["mean_return"] for run in then), steps_of(then), f"{ratio:.1f}"]
        rows.append(" | ".join(cells))
        where = harness.machine(own) if "cpu" in own else f"commit {own['commit']}"
        others = dict.fromkeys(harness.machine(run["measured"]) for run in runs)
        machines.append(f"- {env_name}: SB3 on {'; '.join(others)}; ours on {where}")
    if not rows:
        return []
    heading, _, explanation = __doc__.partition("\n\n")
    columns = ("steps", "evaluation", "last 100", "seconds")
    head = ["run", *(f"{trainer}: {name}" for trainer in ("ours", "SB3") for name in columns)]
    head += ["SB3 at equal seconds: last 100", "steps", "ratio of seconds"]
    parts = [f"## {heading.partition(':')[0]}", explanation.strip()]
    return [*parts, harness.table(" | ".join(head), rows), "\n".join(machines)]


def cells_of(runs: Sequence[harness.Result]) -> list[str]:
    """Write steps, evaluation, return of the last 100 episodes and seconds of the runs."""
    evaluations = [run["evaluation"] for run in runs]
    means = [each["mean"] if isinstance(each, dict) else each for each in evaluations]
    last = (run["mean_return"] for run in runs)
    return [steps_of(runs), typical(means), typical(last), f"{seconds_of(runs):,.0f}"]


def typical(values: Iterable[float | None]) -> str:
    """Write the interquartile mean; "-" if a value is missing."""
    shown = f"{interquartile_mean(np.array([*values], float)):,.1f}"
    return "-" if shown == "nan" else shown


def steps_of(runs: Sequence[harness.Result]) -> str:
    return f"{median(run['steps'] for run in runs):,.0f}"


def seconds_of(runs: Sequence[harness.Result]) -> float:
    return median(run["seconds"] for run in runs)
