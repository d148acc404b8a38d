"""Training speed beside Stable-Baselines3: python -m benchmarks.throughput [--quick | --scaling |
--device=cuda] [--workloads=W,...] [--sizes=8,64,256] [--repetitions=5] [--flags="--name=value ..."]
[--cleanrl="python FOLDER/ppo.py"] [--name=NAME]

Trains on the same work in turn, as many steps by each trainer, for environments cost more or less
as a policy learns. Ours is main.py in a fresh process, as a user calls it, with a worker process
per core. SB3 is its PPO on its DummyVecEnv in its only process, made from the environment's id as
its documentation has it; SB3 plain is the same on environments that cannot render (given an id, SB3
asks for render_mode="rgb_array", which slows LunarLander's step down; ours never does). Measured
are environment steps per second from the end of the first iteration to the end of the last.

- CartPole-v1, LunarLander-v3, BipedalWalker-v3: 8 environments x 128 steps, 4 epochs x 4
  minibatches, 2 x 64 tanh each for policy and value, learned in one thread by both, the best for
  each. Ours also with more environments and as many minibatches, and on 64 of EnvPool's; ratios are
  to SB3 with 8
- PongNoFrameskip-v4: the same from pixels, Nature CNN, a torch thread per core; ours by
  --precision=auto and float32
- robotics: HalfCheetah, 16 x 512, 10 epochs of minibatches of 512, 2 x 256, both normalise
  observations and rewards
- sb3-defaults: HalfCheetah by all defaults of Stable-Baselines3, one environment
- small-batches: LunarLander, 8 x 256, 10 epochs of minibatches of 64
- memory: CartPole without velocities, LSTM of 128; the peer is RecurrentPPO of SB3-Contrib, with
  one LSTM for policy and value as ours has
- the last four beside SB3 plain by one torch thread and by two
- --cleanrl: how to run CleanRL's ppo.py, which does CartPole-v1's work too, in one torch thread

Shares of an iteration are medians of collecting and learning in those runs, and of collecting what
environments and policy take when one worker's part of them is run alone; the rest is communication,
bookkeeping and waiting. The limit is what the environment takes with a random policy on all cores
at once, and then the arithmetic of all passes at the speed at which this machine multiplies the
largest layer's matrices; limit / measured is 1 for a trainer that cannot be faster here. Memory is
the largest sum over all processes in two iterations, pages that several share counted once.

The machine should have nothing else to do. --flags are passed on to main.py. --quick is a short
look at two environments, which writes nothing; --scaling measures speed against workers and
environments, and memory, instead. --device=cuda compares a learner there, by CUDA graphs and
without them, with one on the CPU beside it, and with SB3's policy there; and CartPoles whose
tensors are there, --batch=4096 of them, with as many on the CPU. Writes results/throughput/;
--name=NAME, for measurements of another machine, writes NAME.md and NAME.json there.
"""

import argparse
import json
import shlex
from collections.abc import Callable
from functools import partial
from statistics import median

from benchmarks import harness
from benchmarks.parts.limits import explain
from benchmarks.parts.workloads import (
    GAME,
    OURS,
    PHASES,
    WORKLOADS,
    memory_of,
    run_cleanrl,
    run_ours,
    run_sb3,
)
from ppo.config.config import Config
from ppo.config.flags import parse_flags

QUICK = "CartPole-v1,LunarLander-v3"
ENVPOOL = ("CartPole-v1", "LunarLander-v3", "BipedalWalker-v3")
SCALED = {"LunarLander-v3": (8, 16, 64, 256, 1024), GAME: (8, 16, 64, 256)}
ON_DEVICE = ("LunarLander-v3", GAME)
DEVICE_SIZES = {8: 24, 64: 6}  # iterations by the number of environments
BATCH = "benchmarks.environments.torch_cartpole:TorchCartPole"
SIZE = 64  # environments where the number of workers changes


def measure(
    name: str,
    flags: str,
    sizes: list[int],
    repetitions: int,
    is_quick: bool = False,
    cleanrl: str = "",
) -> harness.Result:
    """Run the trainers on a workload with the same seeds; say where our time goes.

    sizes: of ours, if the workload is one that grows; cleanrl: the beginning of a command line.
    """
    workload = WORKLOADS[name]
    if not workload.is_documented:
        sizes = [workload.num_envs]
    own = {f"ours, {size}": (size, f"{workload.own_flags(size)} {flags}") for size in sizes}
    if name == GAME and not is_quick:
        own["ours, 8, float32"] = (8, f"{workload.own_flags(8)} --precision=float32 {flags}")
    variants: dict[str, Callable[[int], harness.Result]] = {
        who: partial(run_ours, workload.env_name, workload.steps_of(size, is_quick), its)
        for who, (size, its) in own.items()
    }
    if name in ENVPOOL and not is_quick:
        variants[f"ours, {SIZE}, EnvPool"] = partial(
            run_ours,
            f"EnvPool/{name}",
            workload.steps_of(SIZE),
            f"{workload.own_flags(SIZE)} {flags}",
        )
    threads = harness.num_cores() if name == GAME else 1
    peers = {"SB3": (True, threads), "SB3 plain": (False, threads)}
    if name == GAME:
        del peers["SB3 plain"]
    elif not workload.is_documented:
        peers = {f"SB3, torch threads: {count}": (False, count) for count in (1, 2)}
    steps = workload.steps_of(is_quick=is_quick)
    for who, how in peers.items():
        variants[who] = partial(harness.in_fresh_process, run_sb3, workload, steps, *how)
    if cleanrl and name == "CartPole-v1":
        variants["CleanRL"] = partial(run_cleanrl, cleanrl, workload, steps)
    runs = harness.alternate(variants, range(1, repetitions + 1), name)
    result = {"env_name": workload.env_name, "runs": runs, "explained": {}}
    for who, (size, its) in own.items():
        if workload.has_limit and not is_quick and "float32" not in who:
            config = Config(**parse_flags(shlex.split(its), Config), env_name=workload.env_name)
            memory = memory_of(workload.env_name, 2 * size * workload.num_steps, its)
            result["explained"][who] = {**explain(config, runs[who]), "memory_mib": memory}
    return result


def compare(results: harness.Result) -> str:
    """Write a table with a row for each workload and trainer; ratios are to each peer."""
    rows = []
    for name, result in results.items():
        speeds = {
            who: [run["steps_per_second"] for run in runs] for who, runs in result["runs"].items()
        }
        peers = [who for who in speeds if not who.startswith("ours")]
        for who, own in speeds.items():
            ratios = {peer: harness.ratios(own, speeds[peer]) for peer in peers if who not in peers}
            medians = [f"{found['of_medians']:.2f} x {peer}" for peer, found in ratios.items()]
            pairs = [harness.each(found["of_pairs"]) for found in ratios.values()]
            cells = [name, who, f"{median(own):,.0f}", "; ".join(medians), "; ".join(pairs)]
            rows.append(" | ".join(cells))
    return harness.table("workload | trainer, environments | steps/s | ratio | each", rows)


def show_explained(results: harness.Result) -> str:
    """Write a table of where our time goes, with a row for each workload and size."""
    rows = []
    for name, result in results.items():
        for who, found in result["explained"].items():
            shares = [f"{found['shares'][part]:.0%}" for part in found["shares"]]
            shares = shares or ["", "", "", ""]
            memory = f"{found['memory_mib']:,.0f}" if "memory_mib" in found else ""
            rows.append(" | ".join([name, who, *shares, f"{found['limit']:.2f}", memory]))
    head = "workload | ours | environment | inference | communication and waiting | learning"
    return harness.table(f"{head} | limit / measured | MiB", rows)


def write_page(stem: str, results: harness.Result) -> None:
    machines = [
        f"- {name}: `{result['command']}` on {harness.machine(result)}"
        for name, result in results.items()
    ]
    parts = [compare(results), show_explained(results), "\n".join(machines)]
    if stem == "README":
        parts.append("![speed and memory by workers and environments](scaling.png)")
    harness.write_page(f"throughput/{stem}.md", __doc__, *parts)


def scale(result: harness.Result, flags: str, repetitions: int) -> None:
    """Measure speed and memory for every number of environments or of workers, and draw them."""
    cores = result["cores"]
    points = result["points"] = []
    for name, sizes in SCALED.items():
        by_size = {(min(cores, size), size) for size in sizes}
        by_workers = {(num_workers, SIZE) for num_workers in range(1, cores + 1)}
        for num_workers, size in sorted(by_size | by_workers):
            own = f"{WORKLOADS[name].own_flags(size)} --num_workers={num_workers} {flags}"
            steps = WORKLOADS[name].steps_of(size, is_quick=name == GAME)
            runs = [run_ours(name, steps, own, seed) for seed in range(1, repetitions + 1)]
            speed = median(run["steps_per_second"] for run in runs)
            memory = memory_of(name, 2 * size * 128, own)
            point = {"env_name": name, "num_workers": num_workers, "num_envs": size}
            points.append({**point, "steps_per_second": speed, "memory_mib": memory})
            print(points[-1], flush=True)
    harness.write_json("throughput/scaling.json", result)
    draw(points, cores)


def measure_device(
    device: str, flags: str, batch: int, repetitions: int, is_quick: bool = False
) -> harness.Result:
    """Measure ours with the learner on a device and, beside it, on the CPU: environments in worker
    processes, and a batch of them whose tensors are where the learner is. And SB3 with its policy
    on the device.

    batch: the number of environments in it. Returns the runs by workload and trainer."""
    num_iterations = 3 if is_quick else 6
    places = {device: "", f"{device} without graphs": "--cuda_graphs=False", "cpu": ""}
    variants: dict[str, dict[str, Callable[[int], harness.Result]]] = {}
    for name in ON_DEVICE:
        work = WORKLOADS[name]
        steps = work.num_steps * num_iterations  # of each environment
        variants[name] = {
            f"ours, {size}, {place}": partial(
                run_ours,
                name,
                size * work.num_steps * (3 if is_quick else count),
                f"{work.own_flags(size)} --device={place.split()[0]} {more} {flags}",
            )
            for size, count in DEVICE_SIZES.items()
            for place, more in places.items()
        }
        peer = work._replace(settings={**work.settings, "device": device})
        variants[name][f"SB3, {peer.num_envs}, {device}"] = partial(
            harness.in_fresh_process, run_sb3, peer, peer.num_envs * steps, False, 1
        )
    sizes = f"--num_envs={batch} --num_steps=32 --num_minibatches=4 --num_epochs=4 --num_workers=0"
    variants[BATCH] = {}
    for place in dict.fromkeys((device, "cpu")):
        kwargs = shlex.quote(f"--env_kwargs={json.dumps({'device': place})}")
        there = f"{OURS} {sizes} {kwargs} --device={place} {flags}"
        variants[BATCH][f"ours, {batch}, {place}"] = partial(
            run_ours, BATCH, num_iterations * 32 * batch, there
        )
    seeds = range(1, repetitions + 1)
    return {name: harness.alternate(own, seeds, name) for name, own in variants.items()}


def device_name(device: str) -> str:
    """Return the name of a GPU, or of another device as it is."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def show_device(results: harness.Result) -> str:
    """Write a table with a row for each workload and trainer: speed, and learning's share of an
    iteration."""
    rows = []
    for name, runs in results.items():
        for who, found in runs.items():
            speed = median(run["steps_per_second"] for run in found)
            share = ""
            if PHASES[0] in found[0]:
                collecting, learning = (median(run[phase] for run in found) for phase in PHASES)
                share = f"{learning / (collecting + learning):.0%}"
            each = harness.each((run["steps_per_second"] for run in found), ",.0f")
            rows.append(f"{name} | {who} | {speed:,.0f} | {each} | {share}")
    head = "workload | trainer, environments, device | steps/s | each | share of learning"
    return harness.table(head, rows)


def write_device_page(result: harness.Result) -> None:
    """Write the page of what measure_device has measured."""
    about = f"""Training speed with the learner on a GPU: beside the CPU, and Stable-Baselines3

The learner is on {result["device"]}, by CUDA graphs or without them, or on the CPU beside it;
environments are stepped by a worker process per core, and those of {BATCH} are tensors where the
learner is. Sizes are those of [README.md](README.md); the peer is Stable-Baselines3 (8
environments, on environments that cannot render) with its policy on the same GPU. What else was
seen on a GPU: [cuda](../cuda/README.md)."""
    harness.write_page("throughput/device.md", about, show_device(result["runs"]), result=result)


def draw(points: list[harness.Result], cores: int) -> None:
    """Draw speed against workers, speed against environments, and memory against environments."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for name in SCALED:
        own = [point for point in points if point["env_name"] == name]
        by_workers = [point for point in own if point["num_envs"] == SIZE]
        by_size = [point for point in own if point["num_workers"] == min(cores, point["num_envs"])]
        for ax, shown, x, y in (
            (axes[0], by_workers, "num_workers", "steps_per_second"),
            (axes[1], by_size, "num_envs", "steps_per_second"),
            (axes[2], by_size, "num_envs", "memory_mib"),
        ):
            values = [point[y] for point in shown]
            ax.plot([point[x] for point in shown], values, marker="o", label=name)
    axes[0].set(xlabel=f"workers, for {SIZE} environments", ylabel="steps per second", yscale="log")
    axes[0].set_xticks(range(1, cores + 1))
    axes[1].set(xlabel="environments", ylabel="steps per second", yscale="log")
    axes[2].set(xlabel="environments", ylabel="MiB at the most")
    for ax in axes[1:]:
        ax.set_xscale("log", base=2)
    axes[0].legend()
    harness.save_figure("throughput/scaling.png", figure)


def parse() -> argparse.Namespace:
    """Read the command line. Ends with an error for what cannot be run."""
    parser = harness.make_parser(
        __doc__, repetitions=5, flags="", sizes="8,64,256", device="", batch=4096
    )
    parser.add_argument("--workloads", help=f"some of {', '.join(WORKLOADS)}; default: all")
    parser.add_argument("--cleanrl", default="", help="how to run CleanRL's ppo.py; default: not")
    parser.add_argument("--name", default="", help="of the results' files, for another machine")
    parser.add_argument("--quick", action="store_true", help="short runs; nothing is written")
    parser.add_argument("--scaling", action="store_true", help="by workers and environments")
    given = parser.parse_args()
    if given.name and (given.scaling or given.device):
        parser.error("--name: their results have one file each: not with --scaling or --device")
    every = QUICK if given.quick else ",".join(WORKLOADS)
    given.workloads = (given.workloads or every).split(",")
    if unknown := {*given.workloads} - WORKLOADS.keys():
        parser.error(f"--workloads: give some of {', '.join(WORKLOADS)}, not {', '.join(unknown)}")
    given.sizes = [8] if given.quick else [int(size) for size in given.sizes.split(",")]
    return given


def main() -> None:
    given = parse()
    about = harness.describe("stable-baselines3", "sb3-contrib", "ale-py")
    if given.scaling:
        scale(about, given.flags, given.repetitions)
        return
    if given.device:
        runs = measure_device(
            given.device, given.flags, given.batch, given.repetitions, given.quick
        )
        if not given.quick:
            about = {**about, "device": device_name(given.device), "runs": runs}
            harness.write_json("throughput/device.json", about)
            write_device_page(about)
        else:
            print(f"\n{show_device(runs)}")
        return
    path = f"throughput/{given.name or 'throughput'}.json"
    results = {} if given.quick else harness.read_json(path)
    for name in given.workloads:
        found = measure(
            name, given.flags, given.sizes, given.repetitions, given.quick, given.cleanrl
        )
        results[name] = {**about, **found}
        if not given.quick:
            harness.write_json(path, results)
    if given.quick:
        print(f"\n{compare(results)}")
    else:
        write_page(given.name or "README", results)


if __name__ == "__main__":
    main()
