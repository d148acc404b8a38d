"""Evaluations, seed by seed: python -m benchmarks.seeds --table=presets --column=NAME [--rows=...]
[--seeds=5] [--first=0] [--tree=FOLDER] [--flags="--name=value ..."]

Final evaluations of runs, of 20 episodes, in the table of bounds 100: the mean over seeds, with the
success rate of robots, then each seed, from 0. Trains the rows of a table with some seeds, one run
per core at a time, in the tree of a version, and adds a column to results/seeds.md. What a column
has already is kept. CarRacing is EnvPool's, which is ten times as fast as gymnasium's."""

import json
from concurrent.futures import as_completed
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import harness

PLAIN = {"num_workers": 0, "logger": "none", "eval_episodes": 100}
ENVIRONMENTS = f"{harness.ROOT}/benchmarks/environments"
ROBOT = f"{ENVIRONMENTS}/robot.py:Robot"
CAR_RACING = f"{ENVIRONMENTS}/car_racing.py:CarRacing"
BOXES = ((-1, 1), (-3, 3), (-3.01, 3.01), (0, 1), (-0.4, 0.4), (-40, 40))


def run_of(env_name: str, **flags: Any) -> dict[str, Any]:
    return {"env_name": env_name, **flags}


def robot_in(low: float, high: float) -> dict[str, Any]:
    return run_of(ROBOT, env_kwargs={"low": low, "high": high}, total_steps=40_000)


def rollouts_of(env_name: str) -> dict[str, Any]:
    """Return a row for each length of rollouts, in which episodes of one length stay in step."""
    sizes: Any = {"num_envs": 16, "total_steps": 200_000}
    return {
        f"{env_name}, {steps} steps": run_of(env_name, num_steps=steps, **sizes)
        for steps in (25, 128, 512)
    }


TABLES = {
    "presets": {x: run_of(x, eval_episodes=20) for x in ("CartPole-v1", "LunarLander-v3")},
    "bounds": {
        **{f"robot [{low}, {high}]": robot_in(low, high) for low, high in BOXES},
        "Pendulum-v1": run_of("Pendulum-v1"),
        "InvertedPendulum-v5": run_of("InvertedPendulum-v5", total_steps=100_000),
        "Pusher-v5": run_of("Pusher-v5", total_steps=100_000),
        "LunarLanderContinuous-v3": run_of("LunarLanderContinuous-v3"),
        "Humanoid-v5": run_of("Humanoid-v5", total_steps=500_000),
        "CarRacing-v3": run_of(CAR_RACING, preset="CarRacing-v3", total_steps=500_000),
    },
    "stagger": {
        **rollouts_of("Pendulum-v1"),
        **rollouts_of("Hopper-v5"),
        **rollouts_of("HalfCheetah-v5"),
        **rollouts_of("Swimmer-v5"),
    },
}


def train(flags: harness.Flags, tree: Path) -> list[float]:
    """Return the mean return of the final evaluation, and its success rate if there is one."""
    evaluation = harness.train({**PLAIN, **flags}, cwd=tree).summary["evaluation"]
    rate = evaluation["env"].get("success_rate")
    return [evaluation["mean"], *([] if rate is None else [rate])]


def show_run(found: list[float]) -> str:
    form = ".2f" if abs(found[0]) < 10 else ",.0f"
    rates = "".join(f" ({rate:.0%})" for rate in found[1:])
    return f"{found[0]:{form}}{rates}"


def show(name: str, results: harness.Result) -> str:
    """Return a table, and the commands that have made it."""
    rows = []
    for run in TABLES[name]:
        cells = [run]
        for column in results.values():
            seeds = column["rows"].get(run, {})
            found = [seeds[seed] for seed in sorted(seeds, key=int)]
            mean = [fmean(x) for x in zip(*found, strict=True)]
            each = ", ".join(show_run(x[:1]) for x in found)
            if len({show_run(x[:1]) for x in found}) == 1:
                each = f"each of {len(found)}"
            cells.append(f"**{show_run(mean)}**: {each}" if found else "")
        if any(cells[1:]):
            rows.append(" | ".join(cells))
    table = harness.table(" | ".join([name, *results]), rows)
    return "\n".join([table, "", *(f"- `{x['command']}`" for x in results.values())])


def write(name: str, results: harness.Result) -> None:
    """Write a table's results to results/NAME.json, and all tables to results/seeds.md."""
    path = harness.RESULTS / f"{name}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    title, _, explanation = str(__doc__).partition("\n\n")
    last = [*results.values()][-1]
    machine = f"{last['cpu']}, {last['cores']} cores, torch {last['versions']['torch']}"
    known = {x: harness.read(x) for x in TABLES}
    parts = [f"# {title.partition(':')[0]}", explanation, f"The machine: {machine}."]
    parts += [show(x, found) for x, found in known.items() if found]
    (harness.RESULTS / "seeds.md").write_text("\n\n".join(parts) + "\n")


def main() -> None:
    options: Any = {"table": "presets", "column": "this", "rows": "", "seeds": 5, "first": 0}
    parser = harness.make_parser(__doc__, **options, tree=".", flags="")
    given = parser.parse_args()
    rows = TABLES[given.table]
    names = given.rows.split(";") if given.rows else [*rows]
    seeds = range(given.first, given.first + given.seeds)
    more = harness.parse_flags(given.flags)
    known = harness.read(given.table).get(given.column, {}).get("rows", {})
    if given.quick:
        names, seeds, known = names[:1], range(2), {}
    tree = Path(given.tree).resolve()
    with harness.thread_per_core() as threads:
        runs = {
            threads.submit(train, {**rows[name], **more, "seed": seed}, tree): (name, str(seed))
            for name in names
            for seed in seeds
            if str(seed) not in known.get(name, {})
        }
        for run in as_completed(runs):
            name, seed = runs[run]
            print(f"{given.column}, {name}, seed {seed}: {run.result()}", flush=True)
            if given.quick:
                continue
            results = harness.read(given.table)
            column = results.setdefault(given.column, {"rows": {}})
            column.update(harness.describe())
            column["rows"].setdefault(name, {})[seed] = run.result()
            write(given.table, results)


if __name__ == "__main__":
    main()
