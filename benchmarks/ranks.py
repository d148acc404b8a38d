"""How ranks share the work: python -m benchmarks.ranks [--ranks=1,2] [--repetitions=3]

Trains with and without torchrun, in turn, with the same number of environments, minibatches and steps in the whole run:
LunarLander by its tuned preset, and with 64 environments; Pong from pixels with 16. Measured are environment steps per
second from the end of the first iteration to the end of the last, and the share of that time in which the first rank
exchanged something with the others or waited for them. Beside that stands what an exchange alone takes: a sum over
ranks of vectors of several sizes, the models' among them. Writes results/ranks/speed.json and speed.md.

With --against=COMMIT one process, with 2 workers, is compared with one of that commit instead, in turn: what ranks cost
those who do without. The learning rate is next to nothing, so that both step through the same episodes. Writes
results/ranks/one_process.json and one_process.md. The machine should have nothing else to do."""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import ROOT, about_machine

RESULTS = ROOT / "results" / "ranks"
PONG = ["--env_name=PongNoFrameskip-v4", "--num_envs=16"]
RUNS = {
    "LunarLander": ["--env_name=LunarLander-v3", "--total_steps=500000"],
    "LunarLander, 64 environments": [
        "--env_name=LunarLander-v3",
        "--num_envs=64",
        "--total_steps=1000000",
    ],
    "Pong, 16 environments": [*PONG, "--total_steps=24576"],
}
SAME = ["--num_workers=2", "--learning_rate=1e-9"]
ONE_PROCESS = {
    "LunarLander": ["--env_name=LunarLander-v3", "--total_steps=250000", *SAME],
    "CartPole": ["--env_name=CartPole-v1", "--total_steps=250000", *SAME],
}
QUIET = ["--logger=none", "--report=False", "--eval_episodes=0"]
SIZES = (1, 9_797, 100_000, 1_687_719)  # numbers: one; LunarLander's gradients; more; Pong's
TIMES = 100


def launcher(*options: str) -> list[str]:
    """main.py by torchrun."""
    return [sys.executable, "-m", "torch.distributed.run", *options, "main.py"]


def of_run(folder: Path) -> dict[str, Any]:
    """What a run came to, of which the first iteration does not count."""
    with (folder / "metrics.csv").open() as file:
        first, *rows = list(csv.DictReader(file))
    steps, seconds = (float(rows[-1][name]) - float(first[name]) for name in ("step", "seconds"))
    exchanging = sum(float(row.get("seconds_exchanging", 0)) for row in rows) / seconds
    evaluation = json.loads((folder / "summary.json").read_text())["evaluation"]["mean"]
    whole = {"steps": int(rows[-1]["step"]), "evaluation": evaluation}
    return {
        "seconds": seconds,
        "steps_per_second": steps / seconds,
        "exchanging": exchanging,
        **whole,
    }


def train(flags: list[str], num_ranks: int, seed: int, root: Path = ROOT) -> dict[str, Any]:
    """What a run by so many ranks came to; by one, without torchrun. root: where main.py is."""
    ranks = launcher("--standalone", f"--nproc_per_node={num_ranks}")
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "main.py"] if num_ranks == 1 else ranks
        command = [*program, *flags, *QUIET, f"--seed={seed}", f"--run_dir={folder}/run"]
        subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, check=True)
        return of_run(Path(folder, "run"))


def compare(commit: str, repetitions: int) -> dict[str, Any]:
    """Steps per second of one process here, and of another commit."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder, "there")
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", str(there), commit],
            cwd=ROOT,
            check=True,
        )
        try:
            for name, flags in ONE_PROCESS.items():
                speeds: dict[str, list[float]] = {"there": [], "here": []}
                for seed in range(1, repetitions + 1):
                    for kind in [*speeds][:: 1 if seed % 2 else -1]:
                        run = train(flags, 1, seed, there if kind == "there" else ROOT)
                        speeds[kind].append(run["steps_per_second"])
                        print(f"{name}, {kind}: {speeds[kind][-1]:,.0f} steps/s", flush=True)
                found[name] = {**speeds, "ratio": median(speeds["here"]) / median(speeds["there"])}
        finally:
            subprocess.run(
                ["git", "worktree", "remove", "--force", str(there)], cwd=ROOT, check=True
            )
    return found


def sums() -> None:
    """As a rank: print the microseconds that an exchange of gradients takes, median, for each size, as JSON."""
    import torch

    from ppo.system.distributed import join_ranks

    torch.set_num_threads(1)
    found = {}
    with join_ranks() as ranks:
        for size in SIZES:
            vector, seconds = torch.zeros(size), []
            for _ in range(TIMES):
                start = time.perf_counter()
                ranks.all_reduce_gradients(vector, {"loss": 0.0}, 1 / ranks.size)
                seconds.append(time.perf_counter() - start)
            found[size] = 1e6 * median(seconds)
        if ranks.rank == 0:
            print(json.dumps(found))


def table(result: dict[str, Any]) -> str:
    counts = [int(count) for count in next(iter(result["runs"].values()))]
    lines = [
        "# How ranks share the work",
        "",
        *__doc__.split("\n")[2:],
        "",
        f"Written by `{result['command']}` on",
    ]
    lines[-1] += f" {result['cpu']}, {result['cores']} cores, commit {result['commit']}; medians."
    head = (
        [f"steps/s, {n}" for n in counts]
        + [f"exchanging, {n}" for n in counts[1:]]
        + ["as fast as one, each"]
    )
    lines += ["", f"| ranks | {' | '.join(head)} |", "| --- " * (len(head) + 1) + "|"]
    for name, runs in result["runs"].items():
        speeds = {n: [run["steps_per_second"] for run in runs[str(n)]] for n in counts}
        cells = [f"{median(speeds[n]):,.0f}" for n in counts]
        cells += [f"{median(run['exchanging'] for run in runs[str(n)]):.0%}" for n in counts[1:]]
        pairs = (
            f"{many / one:.2f}"
            for n in counts[1:]
            for many, one in zip(speeds[n], speeds[1], strict=True)
        )
        lines.append(f"| {name} | {' | '.join(cells)} | {', '.join(pairs)} |")
    lines += ["", "An exchange alone, on this machine:", ""]
    lines += [
        f"| numbers | {' | '.join(f'{n} ranks' for n in counts[1:])} |",
        "| --- " * len(counts) + "|",
    ]
    for size in SIZES:
        cells = [f"{result['sums'][str(n)][str(size)]:,.0f} us" for n in counts[1:]]
        lines.append(f"| {size:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def comparison(result: dict[str, Any]) -> str:
    lines = ["# What ranks cost one process", "", f"Written by `{result['command']}` on"]
    lines[-1] += (
        f" {result['cpu']}, {result['cores']} cores, at commit {result['commit']}; medians."
    )
    lines += [
        "",
        "| 2 workers | steps/s | before | ratio of medians | median of pairs | each pair |",
        "| --- " * 6 + "|",
    ]
    for name, found in result["runs"].items():
        pairs = [here / there for here, there in zip(found["here"], found["there"], strict=True)]
        speeds = (
            f"{median(found['here']):,.0f} | {median(found['there']):,.0f} | {found['ratio']:.3f}"
        )
        lines.append(
            f"| {name} | {speeds} | {median(pairs):.3f} | {', '.join(f'{x:.3f}' for x in pairs)} |"
        )
    return "\n".join(lines) + "\n"


def write(name: str, result: dict[str, Any], text: str) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    (RESULTS / f"{name}.md").write_text(text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="1,2", help="numbers of them, of which 1 is the first")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--against", default="", help="a commit, to compare one process with")
    parser.add_argument("--sums", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.sums:
        sums()
        return
    command = f"python -m benchmarks.ranks --repetitions={given.repetitions}"
    result: dict[str, Any] = {"command": command, **about_machine("torch", "gymnasium", "numpy")}
    if given.against:
        result["command"] += f" --against={given.against}"
        result["runs"] = compare(given.against, given.repetitions)
        write("one_process", result, comparison(result))
        return
    counts = [int(count) for count in given.ranks.split(",")]
    result |= {"command": f"{command} --ranks={given.ranks}", "runs": {}, "sums": {}}
    for count in counts[1:]:
        ranks = [
            *launcher("--standalone", f"--nproc_per_node={count}")[:-1],
            "-m",
            "benchmarks.ranks",
            "--sums",
        ]
        result["sums"][str(count)] = json.loads(subprocess.check_output(ranks, cwd=ROOT))
    for name, flags in RUNS.items():
        runs: dict[str, list[Any]] = {str(count): [] for count in counts}
        for seed in range(1, given.repetitions + 1):
            for count in counts[:: 1 if seed % 2 else -1]:
                runs[str(count)].append(train(flags, count, seed))
                print(f"{name}, {count} ranks: {runs[str(count)][-1]}", flush=True)
        result["runs"][name] = runs
    write("speed", result, table(result))


if __name__ == "__main__":
    main()
