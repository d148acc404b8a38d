"""What is learned: python -m benchmarks.learning [--runs=CartPole-v1,Hopper-v5] [--seeds=5]
[--episodes=100] [--sb3=SEEDS] [--quick]

Trains each environment that has tuned values by them; others by the values of their kind (discrete,
continuous), which were chosen on other environments; CartPole without velocities with and without
a memory; and Pong. One run per core at a time, each in one process, in runs/learning/, where the
same command resumes a run that was interrupted.

- evaluation: deterministic actions, after training; the interquartile mean of all seeds, its 95 %
  bootstrap interval (Agarwal et al. 2021), and each seed's mean
- returns are the environment's own, undiscounted; seconds are those of training alone, with another
  run beside it
- published: PPO of Stable-Baselines3 with values tuned for the environment (rl-baselines3-zoo,
  benchmark.md), after a million steps unless said otherwise

--sb3 trains also Stable-Baselines3's PPO with so many seeds by the values of RL-Baselines3-Zoo, for
as many steps as ours, rounded up to whole rollouts. Writes results/learning.md."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import harness
from benchmarks.parts import zoo

NAME = "learning"
FOLDER = harness.ROOT / "runs" / "learning"
PRESETS = harness.ROOT / "ppo" / "presets"
TUNED = sorted(path.stem for path in PRESETS.glob("*-v*.json"))
PLAIN = {"num_workers": 0, "logger": "none"}
HIDDEN = {
    "env_name": "CartPole-v1",
    "wrapper": "benchmarks.environments.hidden_velocity:HideVelocities",
    "num_envs": 8,
    "num_steps": 128,
    "num_minibatches": 4,
    "num_epochs": 10,
    "learning_rate": "linear:0.001",
    "total_steps": 200_000,
}
MILLION = {"total_steps": 1_000_000}
# By the values of their kind, which have no part in the choice of those.
BY_KIND: dict[str, dict[str, Any]] = {
    "HalfCheetah-v5": MILLION,
    "Walker2d-v5": MILLION,
    "Reacher-v5": MILLION,
    "MountainCar-v0": {"total_steps": 500_000},
    "CliffWalking-v1": {**MILLION, "max_episode_steps": 200},
}
RUNS: dict[str, dict[str, Any]] = {
    **{name: {"env_name": name} for name in TUNED},
    **{name: {"env_name": name, **flags} for name, flags in BY_KIND.items()},
    "HiddenVelocity-lstm": {**HIDDEN, "model": "lstm"},
    "HiddenVelocity-mlp": {**HIDDEN, "model": "mlp"},
    "PongNoFrameskip-v4": {"env_name": "PongNoFrameskip-v4", "total_steps": 2_000_000},
}
PUBLISHED = {
    "Acrobot-v1": "-73.5",
    "Ant-v5": "1,327",
    "BipedalWalker-v3": "287.9 (5 M)",
    "CartPole-v1": "500 (100 k)",
    "HalfCheetah-v5": "5,819",
    "Hopper-v5": "2,410",
    "LunarLander-v3": "242.1",
    "LunarLanderContinuous-v3": "270.9",
    "MountainCar-v0": "-110.4",
    "MountainCarContinuous-v0": "88.3 (20 k)",
    "Pendulum-v1": "-172.2 (100 k)",
    "PongNoFrameskip-v4": "20.99 (10 M)",
    "Swimmer-v5": "281.6",
    "Walker2d-v5": "3,479",
}


def train(name: str, more: harness.Flags, folder: Path | None, seed: int) -> harness.Result:
    """Train a seed, or resume it if its run has a folder; return what is kept of it."""
    run_dir = folder and folder / f"{name}-s{seed}"
    run = harness.train({**RUNS[name], **PLAIN, **more, "seed": seed}, run_dir)
    summary = run.summary
    evaluation = summary["evaluation"]["mean"]
    return {x: summary[x] for x in ("steps", "seconds")} | {"seed": seed, "evaluation": evaluation}


def train_by_sb3(name: str, steps: int, seed: int) -> harness.Result:
    found: harness.Result = harness.in_fresh_process(zoo.train, name, seed, steps)
    return found


def side_by_side(train: Callable[[int], harness.Result], seeds: range) -> list[harness.Result]:
    """Train some seeds, one per core at a time."""
    with harness.thread_per_core() as threads:
        return [*threads.map(train, seeds)]


def show(results: harness.Result) -> str:
    rows = []
    for name, result in results.items():
        for who in ("ours", "SB3"):
            runs = result.get(who)
            if not runs:
                continue
            means = [run["evaluation"] for run in runs]
            low, high = harness.interval(means)
            cells = [
                name,
                who,
                f"{median(run['steps'] for run in runs):,.0f}",
                f"{harness.interquartile_mean(means):,.1f} [{low:,.1f}, {high:,.1f}]",
                harness.each(means),
                PUBLISHED.get(name, "") if who == "ours" else "",
                f"{median(run['seconds'] for run in runs):,.0f}",
            ]
            rows.append(" | ".join(cells))
    head = "run | by | steps | evaluation | each seed | published | seconds"
    return harness.table(head, rows)


def main() -> None:
    parser = harness.make_parser(__doc__, runs="", seeds=5, episodes=100, sb3=0)
    given = parser.parse_args()
    names = harness.chosen(parser, given.runs, RUNS)
    seeds = range(given.seeds)
    more: dict[str, Any] = {"eval_episodes": given.episodes, "resume": "auto"}
    folder: Path | None = FOLDER
    if given.quick:
        names, seeds, folder = ["CartPole-v1"], range(2), None
        more = {"eval_episodes": 10, "total_steps": 20_480}
    results = {} if given.quick else harness.read(NAME)
    for name in names:
        about = harness.describe(*["stable-baselines3"] * bool(given.sb3))
        ours = side_by_side(partial(train, name, more, folder), seeds)
        results[name] = {**results.get(name, {}), **about, "ours": ours}
        if given.sb3 and name in zoo.ZOO:
            beside = partial(train_by_sb3, name, ours[0]["steps"])
            results[name]["SB3"] = side_by_side(beside, range(given.sb3))
        print(f"{name}: {[run['evaluation'] for run in ours]}", flush=True)
        if not given.quick:
            harness.write(NAME, __doc__, results, show(results))
    print(f"\n{show(results)}")


if __name__ == "__main__":
    main()
