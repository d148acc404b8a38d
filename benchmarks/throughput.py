"""Training speed beside Stable-Baselines3: python -m benchmarks.throughput [--quick | --scaling] [--envs=E,...]
[--sizes=8,64,256] [--repetitions=3] [--flags="--name=value ..."]

Trains on the same work in turn: 8 environments x 128 steps, 4 epochs x 4 minibatches, as many steps by each trainer,
for environments cost more or less as a policy learns. Ours is main.py in a fresh process, as a user calls it, with a
worker process per core; SB3 is its PPO on its DummyVecEnv in its only process, made from the environment's id as its
documentation has it; SB3 plain is the same on environments that cannot render (given an id, SB3 asks for
render_mode="rgb_array", which slows LunarLander's step down; ours never does). Networks for vectors are 2 x 64 tanh
each for policy and value, learned in one thread by both, which is the best for each. Pong is learned by the Nature CNN
in a torch thread per core, likewise; by ours with --precision=auto and, with 8 environments, float32; by SB3 as its
documentation has Atari: make_atari_env, VecFrameStack, CnnPolicy. Ours is also run with more environments, at least 10
iterations of as many minibatches; all ratios are to SB3 with 8. Still different: SB3 clips values without taking the
larger of both errors. Measured are environment steps per second of the training loop, collecting and learning, from
the end of the first iteration, in which our workers get ready, to the end of the last.

Shares of an iteration are its medians of collecting and learning in those runs, and of collecting what environments and
policy take when one worker's part of them is run alone, in one process; the rest is communication, bookkeeping and
waiting. The limit is what the environment takes with a random policy on all cores at once, and then the arithmetic of
all passes at the speed at which this machine multiplies the largest layer's matrices; limit / measured is 1 for a
trainer that cannot be faster here. Memory is the largest sum over all processes in two iterations, pages that several
share counted once. The machine should have nothing else to do.

--flags are passed on to main.py. --quick is a short look, which writes nothing; --scaling measures speed against
workers and environments, and memory, instead (benchmarks/scaling.py). Else writes results/throughput/: for each
environment a file of all that was measured, and README.md and ratios.png, which show them.
"""

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Any

from benchmarks import limits, scaling
from benchmarks.common import ROOT, about_machine, peak_memory
from benchmarks.trainers import (
    GAME,
    NUM_STEPS,
    OURS,
    PHASES,
    PIXELS,
    SB3,
    our_command,
    run_ours,
    run_sb3,
)
from ppo.config.config import Config
from ppo.config.flags import parse_flags
from ppo.errors import ConfigError

RESULTS = ROOT / "results" / "throughput"
STEPS = {
    "CartPole-v1": 131_072,
    "LunarLander-v3": 81_920,
    "BipedalWalker-v3": 61_440,
    GAME: 12_288,
}  # of each run
QUICK = {"CartPole-v1": 16_384, "LunarLander-v3": 10_240, "BipedalWalker-v3": 8_192, GAME: 3_072}
SETTLED = {
    "env_name",
    "total_steps",
    "num_iterations",
    "num_envs",
    "num_steps",
    "seed",
    "run_dir",
    "name",
    "resume",
}
PEERS = ("SB3", "SB3 plain")
Flags = dict[str, Any]
Run = dict[str, Any]


def steps_of(env_name: str, size: int) -> int:
    """Of a run with so many environments: at least 10 iterations, of which none is cut off."""
    iteration = size * NUM_STEPS
    return max(10, STEPS[env_name] // iteration) * iteration


def trainers(
    env_name: str, steps: dict[int, int], flags: Flags, process: ProcessPoolExecutor
) -> dict[str, Callable[[int], Run]]:
    """What trains once with a seed, by name. steps: of ours, by size; process: where SB3 is run."""
    made = {
        f"ours, {n}": partial(run_ours, env_name, steps[n], flags={**flags, "num_envs": n})
        for n in steps
    }
    if env_name == GAME and 8 in steps:
        made["ours, 8, float32"] = partial(
            run_ours, env_name, steps[8], flags={**flags, "precision": "float32"}
        )
    for peer in PEERS[: 1 if env_name == GAME else 2]:
        theirs = partial(process.submit, run_sb3, env_name, steps.get(8, STEPS[env_name]))
        made[peer] = lambda seed, theirs=theirs, peer=peer: theirs(
            seed, peer == "SB3 plain"
        ).result()
    return made


def measure(env_name: str, steps: dict[int, int], flags: Flags, repetitions: int) -> dict[str, Any]:
    """All repetitions, each of which is a run of every trainer with the same seed, every other in reversed order."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        train = trainers(env_name, steps, flags, process)
        runs: dict[str, list[Run]] = {trainer: [] for trainer in train}
        for seed in range(1, repetitions + 1):
            for trainer in list(train)[:: 1 if seed % 2 else -1]:
                runs[trainer].append({"seed": seed, **train[trainer](seed)})
                speed = f"{runs[trainer][-1]['steps_per_second']:,.0f} steps/s"
                print(f"{env_name}, {seed} of {repetitions}, {trainer}: {speed}", flush=True)
    speeds = {trainer: [run["steps_per_second"] for run in runs[trainer]] for trainer in runs}
    medians = {trainer: median(speeds[trainer]) for trainer in runs}
    peers = [peer for peer in PEERS if peer in runs]
    ratios = {
        trainer: {
            peer: {
                "of_medians": medians[trainer] / medians[peer],
                "of_pairs": [
                    mine / other for mine, other in zip(speeds[trainer], speeds[peer], strict=True)
                ],
            }
            for peer in peers
        }
        for trainer in runs
        if trainer not in peers
    }
    return {"env_name": env_name, "medians": medians, "ratios": ratios, "runs": runs}


def explain(
    env_name: str, size: int, flags: Flags, result: dict[str, Any], cores: int
) -> dict[str, Any]:
    """Of ours with so many environments: where the time goes, how near the limit it is, and MiB of memory at most."""
    flags, runs = {**flags, "num_envs": size}, result["runs"][f"ours, {size}"]
    config = Config(**{**flags, "env_name": env_name})
    speed = result["medians"][f"ours, {size}"]
    phases = [median(run[phase] for run in runs) for phase in PHASES]
    with tempfile.TemporaryDirectory() as folder:
        memory = peak_memory(
            *our_command(env_name, 2 * config.rollout_size, 1, flags), f"--run_dir={folder}/run"
        )
    shares = limits.shares(config, config.rollout_size / speed, *phases)
    return {"shares": shares, "limit": limits.limit(config, cores, speed), "memory_mib": memory}


def comparison(results: list[dict[str, Any]]) -> str:
    """Markdown: a row for each environment and trainer."""
    rows = [
        [
            "environment",
            "trainer, environments",
            "steps/s",
            "frames/s",
            "x SB3",
            "x SB3 plain",
            "each; each",
        ]
    ]
    for r in results:
        for trainer, speed in r["medians"].items():
            ratios = r["ratios"].get(trainer, {})
            pairs = "; ".join(
                ", ".join(f"{x:.2f}" for x in ratio["of_pairs"]) for ratio in ratios.values()
            )
            times = [
                f"{ratios[peer]['of_medians']:.2f}" if peer in ratios else "" for peer in PEERS
            ]
            name, frames = (
                trainer + ", 8" * (trainer in PEERS),
                f"{4 * speed:,.0f}" if r["env_name"] == GAME else "",
            )
            rows.append([r["env_name"], name, f"{speed:,.0f}", frames, *times, pairs])
    return markdown(rows)


def explanation(results: list[dict[str, Any]]) -> str:
    """Markdown: a row for each environment and size of ours."""
    rows: list[list[str]] = []
    for r in results:
        for size, found in r["sizes"].items():
            limit = found["limit"]
            seconds = [
                f"{limit[name]:.3f}"
                for name in ("measured_seconds", "seconds", "seconds_arithmetic")
            ]
            shares = [f"{share:.0%}" for share in found["shares"].values()]
            last = [f"{limit['distance']:.2f}", f"{found['memory_mib']:,.0f}"]
            rows.append([r["env_name"], size, *shares, *seconds, *last])
    names = [
        *results[0]["sizes"][size]["shares"],
        "s/iteration",
        "limit, s",
        "of it arithmetic, s",
        "limit / measured",
    ]
    return markdown([["environment", "environments", *names, "MiB"], *rows])


def markdown(rows: list[list[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def tell(results: list[dict[str, Any]]) -> str:
    """Markdown: what the files say."""
    machines = [
        f"- {r['env_name']}: `{r['command']}` at commit {r['commit']}; {r['cpu']}, {r['cores']} cores, load before "
        f"{r['load_before']}, {', '.join(f'{name} {version}' for name, version in r['versions'].items())}"
        for r in results
    ]
    parts = [
        "# Training speed beside Stable-Baselines3",
        "![steps per second](ratios.png)",
        comparison(results),
    ]
    return (
        "\n\n".join(
            [*parts, explanation(results), "\n".join(machines), *__doc__.strip().split("\n\n")[1:3]]
        )
        + "\n"
    )


def draw(results: list[dict[str, Any]]) -> None:
    """Bars of steps per second, of every trainer on every environment."""
    from matplotlib import pyplot

    size = (2.8 * len(results), 4)
    figure, axes = pyplot.subplots(
        1, len(results), figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    for ax, r in zip(axes[0], results, strict=True):
        names, speeds = list(r["medians"]), list(r["medians"].values())
        colors = ["tab:gray" if name in PEERS else "tab:blue" for name in names]
        ax.bar_label(
            ax.bar(names, speeds, color=colors), [f"{speed:,.0f}" for speed in speeds], fontsize=7
        )
        ax.set(yscale="log", title=r["env_name"])
        ax.tick_params(axis="x", rotation=60)
    axes[0][0].set(ylabel="environment steps per second", ylim=(100, 2 * axes[0][0].get_ylim()[1]))
    figure.savefig(RESULTS / "ratios.png", dpi=100, bbox_inches="tight")


def write(result: dict[str, Any]) -> None:
    """Keep what was measured on an environment, and show it beside what is there of others."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{result['env_name']}.json").write_text(json.dumps(result, indent=2) + "\n")
    found = [
        json.loads(path.read_text())
        for name in STEPS
        if (path := RESULTS / f"{name}.json").exists()
    ]
    results = [r for r in found if "sizes" in r]  # else it is older than this
    (RESULTS / "README.md").write_text(tell(results))
    draw(results)


def numbers_in(text: str) -> list[int]:
    """Of "8,64,256", from the smallest on."""
    return sorted({int(part) for part in text.split(",")})


def parse() -> tuple[argparse.Namespace, Flags]:
    """The command line, and what --flags are. Ends with an error for what cannot be run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--envs",
        type=lambda text: text.split(","),
        default=list(STEPS),
        help=f"of {', '.join(STEPS)}",
    )
    parser.add_argument(
        "--sizes", type=numbers_in, default=[8, 64, 256], help="numbers of environments for ours"
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--flags", default="", help='for main.py: --flags="--num_workers=1 ..."')
    parser.add_argument(
        "--quick", action="store_true", help="8 environments, short runs; nothing is written"
    )
    parser.add_argument(
        "--scaling", action="store_true", help="speed and memory against workers and environments"
    )
    given = parser.parse_args()
    if unknown := set(given.envs) - {*STEPS}:
        parser.error(
            f"--envs={','.join(given.envs)}: give some of {', '.join(STEPS)}, not {', '.join(unknown)}"
        )
    if given.sizes[0] < 1 or given.repetitions < 1:
        parser.error("give --sizes and --repetitions of at least 1")
    if given.quick and given.scaling:
        parser.error("give one of --quick and --scaling")
    try:
        flags = parse_flags(shlex.split(given.flags), Config)
        if settled := SETTLED & {*flags}:
            parser.error(f"--flags={given.flags}: leave out {', '.join(settled)}, which this sets")
        Config(**{**OURS, **flags})
    except (ConfigError, ValueError) as error:
        parser.error(f"--flags={given.flags}: {error}")
    return given, flags


def main() -> None:
    given, extra = parse()
    about = about_machine("torch", "gymnasium", "numpy", "ale-py", "stable-baselines3")
    print(*(f"{name}: {value}" for name, value in about.items()), sep="\n")
    about["command"] = shlex.join(["python", "-m", "benchmarks.throughput", *sys.argv[1:]])
    if given.scaling:
        scaling.measure(about, extra, given.repetitions)
        return
    results = []
    for env_name in given.envs:
        flags = {**(PIXELS if env_name == GAME else OURS), **extra}
        if given.quick:
            results.append(
                measure(
                    env_name,
                    {8: QUICK[env_name]},
                    flags,
                    1 if env_name == GAME else given.repetitions,
                )
            )
            continue
        steps = {size: steps_of(env_name, size) for size in given.sizes}
        result = {**about, "steps": steps, **measure(env_name, steps, flags, given.repetitions)}
        result["ours"] = shlex.join(
            ["python", *our_command(env_name, steps_of(env_name, 8), "SEED", flags)]
        )
        result["sb3"] = {**SB3, "policy": "CnnPolicy" if env_name == GAME else "MlpPolicy"}
        result["sizes"] = {
            str(size): explain(env_name, size, flags, result, about["cores"])
            for size in given.sizes
        }
        write(result)
        results.append(result)
    print(f"\n{comparison(results)}")
    if not given.quick:
        print(f"\n{explanation(results)}")


if __name__ == "__main__":
    main()
