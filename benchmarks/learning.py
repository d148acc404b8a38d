"""What is learned: python -m benchmarks.learning [RUN ...] [--seeds=5] [--first=1] [--episodes=100]
[--sb3=SEEDS] [--check]

Trains each environment that has tuned values; others by the values of their family, of which these
and those of the id are no part; CartPole by the values of the CleanRL tutorial and of Lightning
Baselines3; CartPole without velocities with and without a memory; Breakout; and Pong in two ways.
CarRacing is evaluated by --episodes=20, whose pictures take half an hour otherwise. Each run
is in the trainer's one process, one run per core at a time, in runs/learning/, where one that was
stopped is continued by the same command. --seeds=0 only writes the page; --check trains the first
ten iterations again and compares their metrics with those of the results, bit for bit but for
times, and notes the commit at which they were the same. Another processor rounds otherwise: where
they differ, the commit of the result trains them here too, and all metrics that both have are
compared.

--sb3 trains also Stable-Baselines3's PPO with so many seeds by the values of RL-Baselines3-Zoo
(benchmarks/parts/zoo.py), for as many steps as ours, rounded up to whole rollouts, in one thread;
shown are interquartile means of its evaluations, what the same runs had come to when they had been
trained for as many seconds as ours were in the median, and the ratio of the seconds, theirs to
ours, for as many steps, if both were measured on the same processor.

- evaluation: by the most likely actions, after training, with frozen statistics; the interquartile
  mean of all seeds, its 95 % bootstrap interval (Agarwal et al. 2021), and each seed's mean
- last 100: mean return of the last 100 episodes of training, exploration included
- returns are the environment's own, undiscounted; seconds are those of training alone, with a
  second run beside it, or more
- published: by PPO of Stable-Baselines3 with values tuned for the environment (rl-baselines3-zoo,
  benchmark.md), after as many steps unless said otherwise
- discrete, continuous, categories: by the values of the family, --preset=FAMILY. They were chosen
  on CartPole, LunarLander, LunarLanderContinuous, BipedalWalker, Pendulum, InvertedPendulum,
  Hopper, Walker2d and MiniGrid-Empty only
- Ant-v5's preset leaves contact forces out of the observation, as Ant-v4 does unless told
  otherwise; by the family's values Ant has them
- envpool: trained on EnvPool's environment of this id (pip install envpool), evaluated on
  gymnasium's
- simple_spread, multiwalker: teams of PettingZoo (pip install mpe2 "pettingzoo[sisl]"), of which a
  return is an agent's; published is random play (ppo check)
- HiddenVelocity is CartPole that shows positions only, in examples/own_environment.py
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from statistics import median
from typing import Any

import numpy as np
from matplotlib import pyplot

from benchmarks import commits, harness
from benchmarks.parts import zoo
from ppo.run.intervals import confidence_interval, interquartile_mean

FOLDER = harness.ROOT / "runs" / "learning"
RESULTS = "learning/learning.json"  # "ours" by the name of the run, "sb3" by the environment
PRESETS = harness.ROOT / "ppo" / "extras" / "presets" / "values"
TUNED = sorted(path.stem for path in PRESETS.glob("*-v*.json"))
HIDDEN = (
    "--env_name=examples.own_environment:HiddenVelocity --preset=CartPole-v1 --num_envs=8"
    " --num_steps=128 --num_minibatches=4 --num_epochs=10 --learning_rate=linear:0.001"
)
PONG = "--env_name=PongNoFrameskip-v4 --end_on_life_loss=True --clip_rewards=True"
PLAIN = "--num_workers=0 --logger=none --report=False"
# No part of the choice of the families' values.
FAMILIES = {
    "HalfCheetah-v5": "--preset=continuous",
    "Ant-v5": "--preset=continuous",
    "Swimmer-v5": "--preset=continuous",
    "MountainCar-v0": "--preset=discrete",
    "CliffWalking-v1": "--preset=discrete --max_episode_steps=200",
    "minigrid:MiniGrid-DoorKey-5x5-v0": "--preset=categories --total_steps=100000",
}
# Trained on EnvPool's environments, and evaluated on gymnasium's.
ENVPOOL = ("LunarLander-v3", "BipedalWalker-v3", "HalfCheetah-v5")
# Of PettingZoo: a policy that all of a team share, and the return of an agent.
TEAMS = {
    "simple_spread": (
        "--env_name=mpe2:simple_spread_v3 --num_envs=96 --num_steps=50 --num_minibatches=4"
        " --learning_rate=linear:0.0005 --gamma=0.95 --entropy_coef=0 --total_steps=600000"
    ),
    "multiwalker": "--env_name=pettingzoo.sisl:multiwalker_v9 --num_envs=18 --total_steps=500000",
}
# By default, which is by the family's values where there are none of their own.
MORE = {
    "InvertedDoublePendulum-v5": "",
    "MountainCar-v0": " --total_steps=500000",
    "Reacher-v5": "",
    "Walker2d-v5": "",
}
RUNS = {
    **{env_name: f"--env_name={env_name}" for env_name in TUNED},
    **{env_name: f"--env_name={env_name}{flags}" for env_name, flags in MORE.items()},
    **{
        f"{env_name.rpartition(':')[2]}-by-family": f"--env_name={env_name} {flags}"
        for env_name, flags in FAMILIES.items()
    },
    **{
        f"{env_name}-envpool": f"--env_name=EnvPool/{env_name} --eval_env={env_name}"
        for env_name in ENVPOOL
    },
    **TEAMS,
    "CartPole-v1-tutorial": (
        "--preset=none --env_id=CartPole-v1 --total_timesteps=200000 --learning_rate=2.5e-4"
        " --num_envs=4 --num_steps=128 --num_minibatches=4 --update_epochs=4 --gamma=0.99"
        " --gae_lambda=0.95 --clip_coef=0.2 --vf_coef=0.5 --max_grad_norm=0.5 --ent_coef=0"
        " --no_normalize_observations --no_normalize_rewards"
    ),
    "CartPole-v1-shared": "--env_name=CartPole-v1 --preset=tutorial --share_trunk=True",
    "CartPole-v1-lightning": "--env_name=CartPole-v1 --preset=lightning",
    "HiddenVelocity-lstm": f"{HIDDEN} --total_steps=200000 --model=lstm",
    "HiddenVelocity-mlp": f"{HIDDEN} --total_steps=200000 --model=mlp",
    "Breakout": (
        "--env_name=BreakoutNoFrameskip-v4 --total_steps=5000000 --learning_rate=linear:0.0005"
    ),
    "Pong": f"{PONG} --model=cnn --total_steps=2000000",
    "Pong-single-frame": f"{PONG} --model=cnn_small --frame_stack=1 --total_steps=600000",
}
# The runs of ours beside which the zoo's values are trained, the longest first.
BESIDE = {
    "BipedalWalker-v3": "BipedalWalker-v3",
    "HalfCheetah-v5": "HalfCheetah-v5-by-family",
    "Hopper-v5": "Hopper-v5",
    "LunarLander-v3": "LunarLander-v3",
    "Acrobot-v1": "Acrobot-v1",
}
# By rl-baselines3-zoo unless said otherwise, after a million steps unless said otherwise.
PUBLISHED = {
    "Acrobot-v1": "-73.5",
    "Ant-v5": "1,327; Tianshou 3,258",
    "BipedalWalker-v3": "287.9 (5 M)",
    "Breakout": "398 (10 M)",
    "CartPole-v1": "500 (100 k)",
    "HalfCheetah-v5": "5,819; Tianshou 5,784",
    "Hopper-v5": "2,410; Tianshou 2,609",
    "InvertedDoublePendulum-v5": "Tianshou 9,231",
    "LunarLander-v3": "242.1",
    "LunarLanderContinuous-v3": "270.9",
    "MiniGrid-DoorKey-5x5-v0": "0.964 (100 k)",
    "MountainCar-v0": "-110.4",
    "MountainCarContinuous-v0": "88.3 (20 k)",
    "Pendulum-v1": "-172.2 (100 k)",
    "multiwalker": "random play -106",
    "Pong": "20.99 (10 M)",
    "Reacher-v5": "Tianshou -4.1",
    "simple_spread": "random play -24.9",
    "Swimmer-v5": "281.6; Tianshou 66.7",
    "Walker2d-v5": "3,479; Tianshou 3,588",
}
# Whose curves are drawn, with a line at this return.
CURVES = {
    "Pong": 18,
    "Breakout": 300,
    "CarRacing": 700,
}
POINTS = 50  # of a curve in the results
CHECKED = 10  # first iterations, whose metrics are hashed


def train(run: str, episodes: int, seed: int) -> harness.Result:
    """Train one seed, or continue it; return what is kept of it."""
    folder = FOLDER / f"{run}-s{seed}"
    flags = f"{RUNS[run]} --seed={seed} --eval_episodes={episodes} {PLAIN}"
    found = harness.train_in(folder, f"{flags} --resume=auto")
    rows = [row for row in found.rows if row["episode_return_mean"]]
    points = [(int(row["step"]), float(row["episode_return_mean"])) for row in rows]
    return {"seed": seed, **found.summary, "curve": thinned(points), "first": digest(found.rows)}


def thinned(points: Sequence[Any]) -> list[Any]:
    """Leave out points of a curve that has more than enough."""
    kept = {round(index * (len(points) - 1) / POINTS) for index in range(POINTS + 1)}
    return [points[index] for index in sorted(kept)]


def digest(rows: list[dict[str, str]]) -> str:
    """Return a hash of the metrics of the first iterations, without times."""
    text = json.dumps(harness.without_times(rows[:CHECKED]))
    return hashlib.sha256(text.encode()).hexdigest()


def is_unchanged(run: str, result: harness.Result) -> bool:
    """Train the first iterations again. Return whether they give the bits of the result, or those
    of its commit on this machine."""
    (before, *_) = result["runs"]
    flags = f"{RUNS[run]} --seed={before['seed']} --eval_episodes=0 {PLAIN}"
    flags += f" --stop_when='iteration>={CHECKED}'"
    found = harness.train(flags)
    if digest(found.rows) == before["first"]:
        return True
    with commits.checkout(result["commit"].removesuffix("-dirty")) as root:
        return commits.same_metrics([found, commits.train(flags, root)])


def show(results: dict[str, harness.Result]) -> str:
    """Write a table of all results."""
    rows = []
    for run, result in results.items():
        runs = result["runs"]
        evaluations = np.array([each["evaluation"]["mean"] for each in runs], float)
        last = np.array([each["mean_return"] for each in runs], float)
        interval = confidence_interval(evaluations, interquartile_mean)
        low_to_high = ""
        if interval is not None and np.isfinite(interval).all():
            low_to_high = " [{:,.1f}, {:,.1f}]".format(*interval)
        cells = [
            run,
            f"{runs[0]['steps']:,}",
            f"{interquartile_mean(evaluations):,.1f}{low_to_high}".replace("nan", "stopped before"),
            harness.each(evaluations, ",.4g").replace("nan", "-"),
            f"{interquartile_mean(last):,.1f}",
            PUBLISHED.get(run.removesuffix("-by-family").removesuffix("-envpool"), ""),
            f"{median(each['seconds'] for each in runs):,.0f}",
            f"`python main.py {RUNS.get(run, '')}`",
            str(result["commit"]),
            result.get("same_bits_at", ""),
        ]
        rows.append(" | ".join(cells))
    head = "run | steps | evaluation | each seed | last 100 | published | seconds"
    return harness.table(f"{head} | command | commit | same bits at", rows)


def train_beside(
    runs: Sequence[str], ours: dict[str, harness.Result], seeds: Sequence[int]
) -> None:
    """Train Stable-Baselines3 beside those runs of ours, one per core at a time. Each run that ends
    is written at once; one that is there is not made again. Raises SystemExit without ours."""
    env_names = [env_name for env_name, run in BESIDE.items() if run in runs]
    if missing := {BESIDE[env_name] for env_name in env_names} - ours.keys():
        raise SystemExit(f"train {', '.join(sorted(missing))} by ours first")
    about = harness.describe("stable-baselines3")
    results = read("sb3")
    with ThreadPoolExecutor(harness.num_cores()) as threads:
        jobs = {}
        for env_name in env_names:
            there = {run["seed"] for run in results.get(env_name, {"runs": []})["runs"]}
            for seed in sorted({*seeds} - there):
                own = ours[BESIDE[env_name]]["runs"]
                jobs[threads.submit(train_by_zoo, env_name, seed, own)] = env_name
        for job in as_completed(jobs):
            env_name = jobs[job]
            runs_there = results.get(env_name, {"runs": []})["runs"]
            found = sorted(
                [*runs_there, {**job.result(), "measured": about}], key=lambda run: run["seed"]
            )
            results[env_name] = {"zoo": zoo.ZOO[env_name], "runs": found}
            write("sb3", results)
            print(
                f"Stable-Baselines3, {env_name}: {[run['evaluation'] for run in found]}", flush=True
            )


def train_by_zoo(env_name: str, seed: int, ours: Sequence[harness.Result]) -> harness.Result:
    """Train for as many steps as ours; note where it was after as many seconds as their median."""
    steps = ours[0]["steps"]
    seconds = median(run["seconds"] for run in ours)
    found = zoo.train(env_name, seed, total_steps=steps, num_threads=1)
    curve = found.pop("curve")
    before = [point for point in curve if point[1] <= seconds] or curve[:1]
    step, _, mean_return = before[-1]
    then = {"seconds": seconds, "steps": step, "mean_return": mean_return}
    return {**found, "at_equal_seconds": then, "curve": thinned(curve)}


def show_beside(ours: dict[str, harness.Result], theirs: dict[str, harness.Result]) -> list[str]:
    """Write a table of both trainers, and the machines, if there are results."""
    rows = []
    machines = []
    for env_name, run in BESIDE.items():
        if run not in ours or env_name not in theirs:
            continue
        own, runs = ours[run], theirs[env_name]["runs"]
        then = [run["at_equal_seconds"] for run in runs]
        ratio = ""
        if {run["measured"]["cpu"] for run in runs} == {own.get("cpu")}:
            ratio = f"{seconds_of(runs) / seconds_of(own['runs']):.1f}"
        cells = [run, *cells_of(own["runs"]), *cells_of(runs)]
        cells += [typical(run["mean_return"] for run in then), steps_of(then), ratio]
        rows.append(" | ".join(cells))
        where = harness.machine(own) if "cpu" in own else f"commit {own['commit']}"
        others = dict.fromkeys(harness.machine(run["measured"]) for run in runs)
        machines.append(f"- {env_name}: SB3 on {'; '.join(others)}; ours on {where}")
    if not rows:
        return []
    columns = ("steps", "evaluation", "last 100", "seconds")
    head = ["run", *(f"{trainer}: {name}" for trainer in ("ours", "SB3") for name in columns)]
    head += ["SB3 at equal seconds: last 100", "steps", "ratio of seconds"]
    heading = "## Beside Stable-Baselines3 with the zoo's values"
    return [heading, harness.table(" | ".join(head), rows), "\n".join(machines)]


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


def drawn(results: dict[str, harness.Result]) -> dict[str, list[str]]:
    """Return the runs of each of CURVES, whose names begin with it, where there are some."""
    runs = {name: [run for run in results if run.startswith(name)] for name in CURVES}
    return {name: own for name, own in runs.items() if own}


def draw(results: dict[str, harness.Result]) -> None:
    """Draw return against steps for each of CURVES."""
    for name, runs in drawn(results).items():
        figure, axes = pyplot.subplots(figsize=(8, 5))
        for run in runs:
            for each in results[run]["runs"]:
                axes.plot(*zip(*each["curve"], strict=True), label=f"{run}, seed {each['seed']}")
        axes.axhline(CURVES[name], color="gray", linewidth=0.5)
        axes.set(xlabel="agent steps", ylabel="mean return of the last 100 episodes", title=name)
        axes.legend()
        harness.save_figure(f"learning/{name}.png", figure)


def read(trainer: str) -> dict[str, harness.Result]:
    """Read all results of a trainer, "ours" or "sb3"."""
    return dict(harness.read_json(RESULTS).get(trainer, {}))


def write(trainer: str, results: dict[str, harness.Result]) -> None:
    """Write all results of a trainer, by name, beside those of the other."""
    by_name = {name: results[name] for name in sorted(results)}
    harness.write_json(RESULTS, {**harness.read_json(RESULTS), trainer: by_name})


def write_page(results: dict[str, harness.Result]) -> None:
    parts = [f"The commands also have `--seed=SEED {PLAIN}`.", show(results)]
    parts += [f"![{name}]({name}.png)" for name in drawn(results)]
    parts += show_beside(results, read("sb3"))
    harness.write_page("learning/README.md", __doc__, *parts)


def has_same_bits(run: str, result: harness.Result) -> bool:
    """Compare a result as is_unchanged does, and say what came out."""
    is_same = is_unchanged(run, result)
    print(run, "the same bits" if is_same else "OTHER BITS", flush=True)
    return is_same


def main() -> None:
    parser = harness.make_parser(__doc__, seeds=5, first=1, episodes=100, sb3=0)
    names = f"of {', '.join(RUNS)}"
    parser.add_argument("runs", nargs="*", default=list(RUNS), metavar="RUN", help=names)
    parser.add_argument("--check", action="store_true", help="compare arithmetic with the results")
    given = parser.parse_args()
    if unknown := {*given.runs} - RUNS.keys():
        parser.error(f"give {names}, not {', '.join(sorted(unknown))}")
    beside = [run for run in BESIDE.values() if run in given.runs]
    if given.sb3 and not beside:
        parser.error(f"--sb3: give some of {', '.join(BESIDE.values())}")
    seeds = range(given.first, given.first + given.seeds)
    cores = [*os.sched_getaffinity(0)]  # one for each run: threads on shared ones would wait
    with ThreadPoolExecutor(
        len(cores), initializer=lambda: os.sched_setaffinity(0, {cores.pop()})
    ) as threads:
        if given.check:
            results = {run: x for run, x in read("ours").items() if run in given.runs}
            same = threads.map(has_same_bits, results, results.values())
            changed = [run for run, is_same in zip(results, same, strict=True) if not is_same]
            for run in results.keys() - changed:
                results[run]["same_bits_at"] = harness.commit()
            write("ours", {**read("ours"), **results})
            write_page(read("ours"))
            parser.exit(bool(changed), f"with other bits: {', '.join(changed) or 'none'}\n")
        waiting = {
            run: [threads.submit(train, run, given.episodes, seed) for seed in seeds]
            for run in (given.runs if seeds else ())
        }
        for run, jobs in waiting.items():
            result = {**harness.describe(), "runs": [job.result() for job in jobs]}
            write("ours", {**read("ours"), run: result})
            print(f"{run}: {[each['evaluation']['mean'] for each in result['runs']]}", flush=True)
    if given.sb3:
        train_beside(beside, read("ours"), range(1, given.sb3 + 1))
    results = read("ours")
    draw(results)
    write_page(results)


if __name__ == "__main__":
    main()
