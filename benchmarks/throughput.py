"""Training speed beside Stable-Baselines3: python -m benchmarks.throughput [--quick | --scaling]
[--envs=E,... | --workloads=W,...] [--sizes=8,64,256] [--repetitions=3] [--flags="--name=value ..."]

Trains on the same work in turn: 8 environments x 128 steps, 4 epochs x 4 minibatches, as many steps
by each trainer, for environments cost more or less as a policy learns. Ours is main.py in a fresh
process, as a user calls it, with a worker process per core; SB3 is its PPO on its DummyVecEnv in
its only process, made from the environment's id as its documentation has it; SB3 plain is the same
on environments that cannot render (given an id, SB3 asks for render_mode="rgb_array", which slows
LunarLander's step down; ours never does). Networks for vectors are 2 x 64 tanh each for policy and
value, learned in one thread by both, which is the best for each. Pong is learned by the Nature CNN
in a torch thread per core, likewise; by ours with --precision=auto and, with 8 environments,
float32; by SB3 as its documentation has Atari: make_atari_env, VecFrameStack, CnnPolicy. Ours is
also run with more environments, at least 10 iterations of as many minibatches; all ratios are to
SB3 with 8. Still different: SB3 clips values without taking the larger of both errors. Measured are
environment steps per second of the training loop, collecting and learning, from the end of the
first iteration, in which our workers get ready, to the end of the last.

Shares of an iteration are its medians of collecting and learning in those runs, and of collecting
what environments and policy take when one worker's part of them is run alone, in one process; the
rest is communication, bookkeeping and waiting. The limit is what the environment takes with a
random policy on all cores at once, and then the arithmetic of all passes at the speed at which this
machine multiplies the largest layer's matrices; limit / measured is 1 for a trainer that cannot be
faster here. Memory is the largest sum over all processes in two iterations, pages that several
share counted once. The machine should have nothing else to do.

--flags are passed on to main.py. --quick is a short look, which writes nothing; --scaling measures
speed against workers and environments, and memory, instead (benchmarks/scaling.py); --workloads
measures other work than 8 x 128, 4 x 4 and 2 x 64 instead (benchmarks/workloads.py), or all of
it. Else writes results/throughput/: for each environment, and each workload, a file of all that was
measured, and README.md and ratios.png, which show them.
"""

import argparse
import shlex
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median

from benchmarks import harness, limits, scaling, workloads
from benchmarks.trainers import (
    GAME,
    NUM_STEPS,
    OURS,
    PHASES,
    PIXELS,
    SB3,
    memory_of,
    run_ours,
    run_sb3,
)
from ppo.config.config import Config
from ppo.config.flags import parse_flags
from ppo.errors import ConfigError

# Steps of each run.
STEPS = {"CartPole-v1": 131_072, "LunarLander-v3": 81_920, "BipedalWalker-v3": 61_440, GAME: 12_288}
QUICK = {"CartPole-v1": 16_384, "LunarLander-v3": 10_240, "BipedalWalker-v3": 8_192, GAME: 3_072}
SETTLED = {"env_name", "total_steps", "num_iterations", "num_envs", "num_steps"}
SETTLED |= {"seed", "run_dir", "name", "resume"}
REPETITIONS = 3
REPETITIONS_OF_WORKLOADS = 5
PEERS = ("SB3", "SB3 plain")
Trainers = dict[str, Callable[[int], harness.Result]]


def steps_of(env_name: str, size: int) -> int:
    """Count the steps of a run with so many environments: at least 10 whole iterations."""
    iteration = size * NUM_STEPS
    return max(10, STEPS[env_name] // iteration) * iteration


def trainers(
    env_name: str, steps: dict[int, int], flags: str, process: ProcessPoolExecutor
) -> Trainers:
    """Make functions that train once with a seed.

    steps: of ours, by the number of environments; process: where Stable-Baselines3 is run.
    """
    made: Trainers = {}
    for size, num_steps in steps.items():
        own = f"{flags} --num_envs={size}"
        made[f"ours, {size}"] = partial(run_ours, env_name, num_steps, own)
    if env_name == GAME and 8 in steps:
        own = f"{flags} --precision=float32"
        made["ours, 8, float32"] = partial(run_ours, env_name, steps[8], own)

    def run_peer(plain: bool, seed: int) -> harness.Result:
        num_steps = steps.get(8, STEPS[env_name])
        return process.submit(run_sb3, env_name, num_steps, plain, seed).result()

    made["SB3"] = partial(run_peer, False)
    if env_name != GAME:
        made["SB3 plain"] = partial(run_peer, True)
    return made


def measure(env_name: str, steps: dict[int, int], flags: str, repetitions: int) -> harness.Result:
    """Run every trainer with the same seeds; return speeds, and ratios of ours to the others."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        variants = trainers(env_name, steps, flags, process)
        runs = harness.alternate(variants, range(1, repetitions + 1), env_name)
    speeds = {name: [run["steps_per_second"] for run in found] for name, found in runs.items()}
    medians = {name: median(values) for name, values in speeds.items()}
    ratios = {
        name: {peer: harness.ratios(own, speeds[peer]) for peer in PEERS if peer in speeds}
        for name, own in speeds.items()
        if name not in PEERS
    }
    return {"env_name": env_name, "medians": medians, "ratios": ratios, "runs": runs}


def explain(env_name: str, size: int, flags: str, result: harness.Result) -> harness.Result:
    """Say where the time goes with so many environments, how near the limit it is, and memory."""
    flags = f"{flags} --num_envs={size}"
    config = Config(**parse_flags(shlex.split(flags), Config), env_name=env_name)
    runs = result["runs"][f"ours, {size}"]
    speed = result["medians"][f"ours, {size}"]
    phases = [median(run[phase] for run in runs) for phase in PHASES]
    return {
        "shares": limits.shares(config, config.rollout_size / speed, *phases),
        "limit": limits.limit(config, result["cores"], speed),
        "memory_mib": memory_of(env_name, 2 * config.rollout_size, flags),
    }


def compare(results: list[harness.Result]) -> str:
    """Write a table with a row for each environment and trainer."""
    rows = []
    for result in results:
        for trainer, speed in result["medians"].items():
            name = f"{trainer}, 8" if trainer in PEERS else trainer
            frames = f"{4 * speed:,.0f}" if result["env_name"] == GAME else ""
            ratios = result["ratios"].get(trainer, {})
            of_medians = {peer: f"{found['of_medians']:.2f}" for peer, found in ratios.items()}
            times = " | ".join(of_medians.get(peer, "") for peer in PEERS)
            pairs = "; ".join(harness.each(found["of_pairs"]) for found in ratios.values())
            speeds = f"{speed:,.0f} | {frames} | {times}"
            rows.append(f"{result['env_name']} | {name} | {speeds} | {pairs}")
    head = "environment | trainer, environments | steps/s | frames/s | x SB3 | x SB3 plain"
    return harness.table(f"{head} | each; each", rows)


def show_sizes(results: list[harness.Result]) -> str:
    """Write a table with a row for each environment and size of ours."""
    rows = []
    for result in results:
        for size, found in result["sizes"].items():
            limit = found["limit"]
            times = [limit[x] for x in ("measured_seconds", "seconds", "seconds_arithmetic")]
            cells = [result["env_name"], size]
            cells += [f"{share:.0%}" for share in found["shares"].values()]
            cells += [f"{seconds:.3f}" for seconds in times]
            cells += [f"{limit['distance']:.2f}", f"{found['memory_mib']:,.0f}"]
            rows.append(" | ".join(cells))
            shares = " | ".join(found["shares"])
    seconds = "s/iteration | limit, s | of it arithmetic, s | limit / measured"
    return harness.table(f"environment | environments | {shares} | {seconds} | MiB", rows)


def draw(results: list[harness.Result]) -> None:
    """Draw bars of steps per second, of every trainer on every environment."""
    from matplotlib import pyplot

    size = (2.8 * len(results), 4)
    figure, axes = pyplot.subplots(
        1, len(results), figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    for ax, result in zip(axes[0], results, strict=True):
        medians = result["medians"]
        colors = ["tab:gray" if name in PEERS else "tab:blue" for name in medians]
        bars = ax.bar(list(medians), list(medians.values()), color=colors)
        ax.bar_label(bars, [f"{speed:,.0f}" for speed in medians.values()], fontsize=7)
        ax.set(yscale="log", title=result["env_name"])
        ax.tick_params(axis="x", rotation=60)
    axes[0][0].set(ylabel="environment steps per second", ylim=(100, 2 * axes[0][0].get_ylim()[1]))
    harness.save_figure("throughput/ratios.png", figure)


def write(name: str, result: harness.Result) -> None:
    """Write what was measured on an environment or a workload, and show it beside all others."""
    harness.write_json(f"throughput/{name}.json", result)
    found = harness.read_all("throughput")
    usual = {name: found[name] for name in STEPS if name in found and "sizes" in found[name]}
    others = {name: found[name] for name in workloads.WORKLOADS if name in found}
    results = list(usual.values())
    parts = ["![steps per second](ratios.png)", compare(results), show_sizes(results)]
    parts.append(machines(usual))
    if others:
        heading, _, explanation = workloads.__doc__.partition("\n\n")
        parts += [f"## {heading.partition(':')[0]}", explanation.strip()]
        parts += [workloads.show(others), machines(others)]
    harness.write_page("throughput/README.md", __doc__, *parts)
    if name in usual:
        draw(results)


def machines(results: dict[str, harness.Result]) -> str:
    """List what each was measured by, and on."""
    lines = [
        f"- {name}: `{each['command']}` on {harness.machine(each)}"
        for name, each in results.items()
    ]
    return "\n".join(lines)


def numbers_in(text: str) -> list[int]:
    """Read "8,64,256", from the smallest on."""
    return sorted({int(part) for part in text.split(",")})


def parse() -> argparse.Namespace:
    """Read the command line. Ends with an error for what cannot be run."""
    parser = harness.make_parser(__doc__, envs=",".join(STEPS))
    others = f"some of {', '.join(workloads.WORKLOADS)}, or all; instead of --envs"
    parser.add_argument("--workloads", default="", help=others)
    default = f"default: {REPETITIONS}, of workloads {REPETITIONS_OF_WORKLOADS}"
    parser.add_argument("--repetitions", type=int, help=default)
    threads = "torch threads of SB3 on workloads, of which the best number counts"
    parser.add_argument("--threads", type=numbers_in, default=[1, 2], help=threads)
    sizes = "numbers of environments for ours"
    parser.add_argument("--sizes", type=numbers_in, default=[8, 64, 256], help=sizes)
    parser.add_argument("--flags", default="", help='for main.py: --flags="--num_workers=1 ..."')
    quick = "8 environments, short runs; nothing is written"
    parser.add_argument("--quick", action="store_true", help=quick)
    grow = "speed and memory against workers and environments"
    parser.add_argument("--scaling", action="store_true", help=grow)
    given = parser.parse_args()
    if given.repetitions is None:
        given.repetitions = REPETITIONS_OF_WORKLOADS if given.workloads else REPETITIONS
    if given.workloads == "all":
        given.workloads = ",".join(workloads.WORKLOADS)
    for flag, names in (("envs", STEPS), ("workloads", workloads.WORKLOADS)):
        unknown = set(filter(None, getattr(given, flag).split(","))) - set(names)
        if unknown:
            parser.error(f"--{flag}: give some of {', '.join(names)}, not {', '.join(unknown)}")
    if min(given.sizes[0], given.threads[0], given.repetitions) < 1:
        parser.error("give --sizes, --threads and --repetitions of at least 1")
    if given.scaling and (given.quick or given.workloads):
        parser.error("give --scaling without --quick and --workloads")
    try:
        settled = SETTLED & set(parse_flags(shlex.split(given.flags), Config))
        if settled:
            parser.error(f"--flags={given.flags}: leave out {', '.join(settled)}, which this sets")
        Config(**parse_flags(shlex.split(f"{OURS} {given.flags}"), Config))
    except (ConfigError, ValueError) as error:
        parser.error(f"--flags={given.flags}: {error}")
    return given


def measure_workloads(about: harness.Result, given: argparse.Namespace) -> None:
    """Measure each workload, and write it, or only print what --quick has found."""
    found = {}
    for name in given.workloads.split(","):
        found[name] = workloads.measure(
            name, given.flags, given.threads, given.repetitions, given.quick
        )
        if not given.quick:
            write(name, {**about, **found[name]})
    if given.quick:
        print(f"\n{workloads.show(found)}")


def main() -> None:
    given = parse()
    packages = ["sb3-contrib"] if given.workloads else ["ale-py"]
    about = harness.describe("stable-baselines3", *packages)
    print(harness.machine(about))
    if given.workloads:
        measure_workloads(about, given)
        return
    if given.scaling:
        scaling.measure(about, given.flags, given.repetitions)
        return
    quick = []
    for env_name in given.envs.split(","):
        is_game = env_name == GAME
        flags = f"{PIXELS if is_game else OURS} {given.flags}"
        if given.quick:
            repetitions = 1 if is_game else given.repetitions
            quick.append(measure(env_name, {8: QUICK[env_name]}, flags, repetitions))
            continue
        steps = {size: steps_of(env_name, size) for size in given.sizes}
        result = {**about, "steps": steps, **measure(env_name, steps, flags, given.repetitions)}
        result["ours"] = f"python main.py --env_name={env_name} --seed=SEED {flags}"
        result["sb3"] = {**SB3, "policy": "CnnPolicy" if is_game else "MlpPolicy"}
        result["sizes"] = {
            str(size): explain(env_name, size, flags, result) for size in given.sizes
        }
        write(env_name, result)
    if given.quick:
        print(f"\n{compare(quick)}")


if __name__ == "__main__":
    main()
