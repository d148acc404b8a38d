"""Training speed compared with Stable-Baselines3: python -m benchmarks.throughput [--quick]
[--workloads=CartPole,Pong] [--sizes=8,64] [--repetitions=3] [--flags="--name=value ..."]
[--device=cuda] [--cleanrl="PYTHON FOLDER/ppo.py"]

Environment steps per second, from the end of the first iteration to the end of the last, of main.py
and of PPO of Stable-Baselines3 (if it is installed) with the same settings, each in a process of
its own. They take turns, with the same seeds and as many steps: environments cost more or less as a
policy learns. --cleanrl: how to run CleanRL's ppo.py, which does CartPole's work, in one thread of
torch (1.2.0, which needs gym 0.23 and numpy 1).

- CartPole, LunarLander, BipedalWalker: 8 environments x 128 steps, 4 epochs x 4 minibatches, 2 x 64
  tanh each for policy and value. Both learn in one thread, which is the best for both
- Pong: the same from pixels, Nature CNN, a torch thread per core
- HalfCheetah: 16 environments x 512 steps, 10 epochs of minibatches of 512, 2 x 256 units,
  observations and rewards normalized
- EnvPool: LunarLander of EnvPool (if it is installed), 64 environments; only ours

Ours is also run with other numbers of environments (--sizes) and as many minibatches; ratios are to
Stable-Baselines3 with 8. Learning is its share of an iteration. Memory is the largest sum over all
processes of ours in two iterations. --flags are passed to main.py."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from statistics import median

from benchmarks import harness
from benchmarks.parts.workloads import (
    PHASES,
    WORKLOADS,
    memory_of,
    run_cleanrl,
    run_ours,
    run_sb3,
)

NAME = "throughput"
QUICK = ("CartPole", "LunarLander")
PACKAGES = {"SB3": "stable_baselines3", "EnvPool": "envpool"}
INSTALLED = {name for name, package in PACKAGES.items() if find_spec(package)}


def measure(
    name: str, sizes: list[int], repetitions: int, more: harness.Flags, device: str, cleanrl: str
) -> harness.Result:
    """Run the trainers on a workload in turn. repetitions: 0 for a quick look; cleanrl: the
    beginning of a command."""
    workload = WORKLOADS[name]
    is_quick = not repetitions
    variants: dict[str, Callable[[int], harness.Result]] = {}
    memory = {}
    for size in sizes if workload.num_envs == 8 else [workload.num_envs]:
        flags = {**workload.own_flags(size), "device": device, **more}
        steps = workload.steps_of(size, is_quick)
        variants[f"ours, {size}"] = partial(run_ours, {**flags, "total_steps": steps})
        if not is_quick:
            two = 2 * size * workload.num_steps
            memory[f"ours, {size}"] = memory_of({**flags, "total_steps": two})
    steps = workload.steps_of(workload.num_envs, is_quick)
    threads = harness.num_cores() if name == "Pong" else 1
    if "SB3" in INSTALLED and name != "EnvPool":
        about = (workload, steps, device, threads)
        variants["SB3"] = partial(harness.in_fresh_process, run_sb3, *about)
    if cleanrl and name == "CartPole":
        variants["CleanRL"] = partial(run_cleanrl, cleanrl, workload, steps)
    seeds = range(1, max(1, repetitions) + 1)
    return {"runs": harness.alternate(variants, seeds, name), "memory": memory}


def show(results: harness.Result) -> str:
    """Return a table with a row for each workload and trainer."""
    rows = []
    for name, result in results.items():
        speeds = {x: [run["steps_per_second"] for run in y] for x, y in result["runs"].items()}
        for who, own in speeds.items():
            ratio = share = ""
            if who.startswith("ours"):
                ratio = f"{median(own) / median(speeds['SB3']):.2f}" if "SB3" in speeds else ""
                runs = result["runs"][who]
                collecting, learning = (median(run[x] for run in runs) for x in PHASES)
                share = f"{learning / (collecting + learning):.0%}"
            memory = f"{result['memory'][who]:,.0f}" if who in result["memory"] else ""
            cells = [name, who, f"{median(own):,.0f}", harness.each(own, ",.0f")]
            cells += [ratio, share, memory]
            rows.append(" | ".join(cells))
    head = "workload | trainer, environments | steps/s | each | ratio | learning | MiB"
    return harness.table(head, rows)


def main() -> None:
    parser = harness.make_parser(
        __doc__, workloads="", sizes="8,64", repetitions=3, flags="", device="cpu", cleanrl=""
    )
    given = parser.parse_args()
    known = [x for x in WORKLOADS if x in INSTALLED or x not in PACKAGES]
    names = harness.chosen(parser, given.workloads, known)
    if given.quick:
        names = [x for x in names if x in QUICK] if not given.workloads else names
        given.repetitions, given.sizes = 0, "8"
    sizes = [int(size) for size in given.sizes.split(",")]
    more = harness.parse_flags(given.flags)
    packages = ["stable-baselines3"] if "SB3" in INSTALLED else []
    results = {} if given.quick else harness.read(NAME)
    for name in names:
        about = harness.describe(*packages)
        found = measure(name, sizes, given.repetitions, more, given.device, given.cleanrl)
        results[name] = {**about, **found}
        if not given.quick:
            harness.write(NAME, __doc__, results, show(results))
    print(f"\n{show(results)}")


if __name__ == "__main__":
    main()
