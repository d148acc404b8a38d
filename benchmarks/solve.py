"""Seconds until an environment is solved: python -m benchmarks.solve [--seeds=5]
[--env=LunarLander-v3] [--flags="..."] [--stop_when=solved] [--envpool=SEEDS] [--sb3=SEEDS]
[--sb3_seconds=1800]

Measured from starting the command that a user would give, with its tuned preset, its output not on
a terminal, and without a report, until it has ended with an evaluation over 100 deterministic
episodes; the first start after installing is slower. By --stop_when, as of main.py, training ends
once the environment is solved: the mean return of 100 deterministic episodes, which is the
evaluation then, reaches the environment's own reward_threshold, or 18 by solved>=18.
Without it, --stop_when=, all steps of the preset are trained.

--envpool: with so many of the seeds, in turn with the others, also on 64 of EnvPool's environments
of this id, by rollouts of as many steps, to the same proof in episodes of gymnasium's own
environment (needs envpool).

--sb3: with so many of the seeds, in turn with the others, also Stable-Baselines3 with the values
that RL-Baselines3-Zoo has tuned, to the same proof and by the same evaluation (python -m
benchmarks.parts.zoo). A run that is not solved after --sb3_seconds of training is "> 1,800", and
counts as that in a median, a lower bound; "unsolved" is one, also of ours, that was not solved
after all steps of its values, and counts as longer than any other.

The ratio is that of a row's median to the median of ours on gymnasium's environment. Writes what
was measured, by the environment or by --name, and a table of it all, to results/solve/, after each
run: the same command at the same commit continues what was interrupted, and --envpool, --sb3 or
more --seeds are added to what is there. The machine should have nothing else to do.
"""

import argparse
import math
import shlex
from functools import partial
from statistics import median

from benchmarks import harness
from benchmarks.parts import zoo
from ppo.extras.presets.presets import load_preset

RESULTS = "solve/solve.json"
ENVPOOL_ENVS = 64
# What trains, by its key in the results, and how the table names it.
KINDS = {"runs": "ours", "envpool": "ours by EnvPool", "sb3": "Stable-Baselines3"}
Runs = list[harness.Result]


def solve(flags: str, seed: int) -> harness.Result:
    """Measure ours. With --stop_when, it is solved if it has stopped by itself."""
    run = harness.train(f"{flags} --seed={seed}")
    return {
        "seconds": run.seconds,
        "steps": run.summary["steps"],
        "evaluation": run.summary["evaluation"]["mean"],
        "solved": bool(run.summary["stopped"]) if "--stop_when=" in flags else None,
    }


def solve_by_envpool(env_name: str, flags: str, seed: int) -> harness.Result:
    """Measure ours on EnvPool's environments, in rollouts of as many steps as the preset's but of
    more environments, which EnvPool steps faster."""
    preset = load_preset("auto", env_name, lambda: "none")
    steps = preset["num_envs"] * preset["num_steps"] // ENVPOOL_ENVS
    size = f"--num_envs={ENVPOOL_ENVS} --num_steps={steps}"
    return solve(f"--env_name=EnvPool/{env_name} --eval_env={env_name} {size} {flags}", seed)


def solve_by_sb3(env_name: str, stop_when: str, seconds: float, seed: int) -> harness.Result:
    """Measure Stable-Baselines3 with the zoo's values, at most so many seconds of training."""
    found = zoo.train(env_name, seed, stop_when=stop_when, seconds=seconds)
    return {
        "seconds": found["command_seconds"],
        "steps": found["steps"],
        "evaluation": found["evaluation"],
        "solved": found["solved"],
        "stopped": found["stopped"],
    }


def measure(given: argparse.Namespace, flags: str, name: str, result: harness.Result) -> None:
    """Train in each way with its seeds, in turn, and write the result after each run. result: with
    the runs that are done, which are not repeated."""
    wanted = {
        "runs": (partial(solve, f"--env_name={given.env} {flags}"), given.seeds),
        "envpool": (partial(solve_by_envpool, given.env, flags), given.envpool),
        "sb3": (partial(solve_by_sb3, given.env, given.stop_when, given.sb3_seconds), given.sb3),
    }
    for seed in range(1, given.seeds + 1):
        for kind, (run, count) in wanted.items():
            if len(result[kind]) < seed <= count:
                found = run(seed)
                result[kind].append(found)
                print(f"{name}, {KINDS[kind]}, {seed} of {count}: {found}", flush=True)
                harness.write_json(RESULTS, {**harness.read_json(RESULTS), name: result})


def read_before(name: str, about: harness.Result) -> dict[str, Runs]:
    """Return the runs that were made by the same command at the same commit."""
    before = harness.read_json(RESULTS).get(name, {})
    found: dict[str, Runs] = {}
    for kind in KINDS:
        conditions = ("command", "commit", *(["sb3_seconds"] if kind == "sb3" else []))
        is_same = all(before.get(key) == about[key] for key in conditions)
        found[kind] = before.get(kind, []) if is_same else []
    return found


def lower_bound(run: harness.Result, limit: float) -> float:
    """Return the least seconds that a run may take to be solved; infinite ones if it never is."""
    if is_cut_off(run):
        return limit
    return math.inf if run.get("solved") is False else run["seconds"]


def is_cut_off(run: harness.Result) -> bool:
    """Return whether a run was ended by --sb3_seconds."""
    return run.get("stopped") == "seconds"


def middle(runs: Runs, limit: float) -> harness.Result:
    """Return the run of the median of seconds; the faster one of two in the middle."""
    return sorted(runs, key=lambda run: lower_bound(run, limit))[(len(runs) - 1) // 2]


def show_seconds(run: harness.Result, limit: float) -> str:
    if is_cut_off(run):
        return f"> {limit:,.0f}"
    return "unsolved" if run.get("solved") is False else f"{run['seconds']:,.1f}"


def show_ratio(runs: Runs, others: Runs, limit: float) -> str:
    """Write the others' median of seconds in multiples of the runs', if there is one of both."""
    own, their = middle(runs, limit), middle(others, limit)
    ratio = lower_bound(their, limit) / lower_bound(own, limit)
    if not 0 < ratio < math.inf:
        return ""
    return f"{'> ' if is_cut_off(their) else ''}{ratio:.2f}"


def show(results: dict[str, harness.Result]) -> list[str]:
    """Write a table of all results, and what each was measured on."""
    rows = []
    machines = []
    for name, result in results.items():
        limit = result.get("sb3_seconds", math.inf)
        for kind, trainer in KINDS.items():
            if not (runs := result.get(kind)):
                continue
            evaluations = [run["evaluation"] for run in runs]
            cells = [
                name,
                trainer,
                show_seconds(middle(runs, limit), limit),
                ", ".join(show_seconds(run, limit) for run in runs),
                "" if kind == "runs" else show_ratio(result["runs"], runs, limit),
                f"{median(run['steps'] for run in runs):,.0f}",
                f"{median(evaluations):,.1f}",
                harness.each(evaluations, ",.1f"),
            ]
            rows.append(" | ".join(cells))
        machines.append(f"- {name}: `{result['command']}` on {harness.machine(result)}")
    head = "name | by | seconds | each | ratio | steps | evaluation | each"
    return [harness.table(head, rows), "\n".join(machines)]


def parse() -> argparse.Namespace:
    """Read the command line. Ends with an error for what cannot be run."""
    options = {"env": "LunarLander-v3", "stop_when": "solved", "envpool": 0, "sb3": 0}
    parser = harness.make_parser(__doc__, **options)
    limit = "of training, after which a run of SB3 is not solved; default: 1800"
    parser.add_argument("--sb3_seconds", type=int, default=1800, help=limit)
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 1 on")
    parser.add_argument("--flags", default="", help="more flags of main.py")
    parser.add_argument("--name", help="of the results; by default the environment's, and -solved")
    given = parser.parse_args()
    if given.seeds < 1:
        parser.error("give at least one of --seeds")
    for name in ("envpool", "sb3"):
        if not 0 <= getattr(given, name) <= given.seeds:
            parser.error(f"give --{name} from 0 to --seeds")
    if given.sb3 and given.env not in zoo.ZOO:
        parser.error(f"--sb3: the zoo has values for {', '.join(zoo.ZOO)}, not for {given.env}")
    try:
        if given.sb3:
            zoo.read_goal(given.env, given.stop_when)
    except ValueError as error:
        parser.error(f"--stop_when: {error}")
    return given


def write_page() -> None:
    harness.write_page("solve/README.md", __doc__, *show(harness.read_json(RESULTS)))


def main() -> None:
    given = parse()
    stop_when = f"--stop_when={shlex.quote(given.stop_when)}" if given.stop_when else ""
    flags = f"{given.flags} --eval_episodes=100 --report=False {stop_when}"
    flags = " ".join(flags.split())
    name = given.name or given.env + ("-solved" if given.stop_when else "")
    packages = ["stable-baselines3"] * bool(given.sb3) + ["envpool"] * bool(given.envpool)
    command = f"python main.py --env_name={given.env} {flags} --seed=SEED"
    about = {**harness.describe(*packages), "command": command}
    about["sb3_seconds"] = given.sb3_seconds
    if given.sb3:
        about["zoo"] = zoo.ZOO[given.env]
    measure(given, flags, name, {**about, **read_before(name, about)})
    write_page()


if __name__ == "__main__":
    main()
