"""How ranks share the work: python -m benchmarks.ranks [--ranks=1,2] [--repetitions=3]

Trains with and without torchrun, in turn, with the same number of environments, minibatches and
steps in the whole run: LunarLander by its tuned preset, and with 64 environments; Pong from pixels
with 16. Measured are environment steps per second from the end of the first iteration to the end of
the last, and the share of that time in which the first rank exchanged something with the others or
waited for them. Beside that stands what an exchange alone takes: a sum over ranks of vectors of
several sizes, the models' among them. The machine should have nothing else to do. Writes
results/ranks/speed.json and speed.md. What one process takes beside one of another commit:
benchmarks.commits.
"""

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from statistics import median

from benchmarks import harness

RUNS = {
    "LunarLander": "--env_name=LunarLander-v3 --total_steps=500000",
    "LunarLander, 64 environments": (
        "--env_name=LunarLander-v3 --num_envs=64 --total_steps=1000000"
    ),
    "Pong, 16 environments": "--env_name=PongNoFrameskip-v4 --num_envs=16 --total_steps=24576",
}
SIZES = (1, 9_797, 100_000, 1_687_719)  # numbers: one; LunarLander's gradients; more; Pong's
NUM_EXCHANGES = 100


def torchrun(*options: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *options]


def summarize(run: harness.Run) -> harness.Result:
    """Say how fast a run was, its first iteration left out, and what came of it."""
    elapsed = run.column("seconds")[-1] - run.column("seconds")[0]
    exchanging = 0.0
    if "seconds_exchanging" in run.rows[0]:
        exchanging = sum(run.column("seconds_exchanging")[1:]) / elapsed
    return {
        "seconds": elapsed,
        "steps_per_second": run.steps_per_second,
        "exchanging": exchanging,
        "steps": int(run.rows[-1]["step"]),
        "evaluation": run.summary["evaluation"]["mean"],
    }


def train(flags: str, num_ranks: int, seed: int) -> harness.Result:
    """Train by so many ranks; by one, without torchrun."""
    program = harness.MAIN
    if num_ranks > 1:
        program = torchrun("--standalone", f"--nproc_per_node={num_ranks}", "main.py")
    return summarize(harness.train(f"{flags} {harness.QUIET} --seed={seed}", program=program))


def time_exchanges() -> None:
    """As a rank: print the median microseconds of an all-reduce for each size, as JSON."""
    import torch

    from ppo.peers import join_peers

    torch.set_num_threads(1)
    found = {}
    with join_peers() as peers:
        for size in SIZES:
            vector = torch.zeros(size)
            seconds = []
            for _ in range(NUM_EXCHANGES):
                start = time.perf_counter()
                peers.average(vector, {"loss": 0.0})
                seconds.append(time.perf_counter() - start)
            found[size] = 1e6 * median(seconds)
        if peers.is_first:
            print(json.dumps(found))


def show_runs(runs: dict[str, harness.Result], counts: list[str]) -> str:
    """Write a table of speeds; counts: numbers of ranks, of which 1 is the first."""
    head = ["ranks", *(f"steps/s, {n}" for n in counts), *(f"exchanging, {n}" for n in counts[1:])]
    rows = []
    for name, found in runs.items():
        speeds = {n: [run["steps_per_second"] for run in found[n]] for n in counts}
        cells = [name, *(f"{median(speeds[n]):,.0f}" for n in counts)]
        cells += [f"{median(run['exchanging'] for run in found[n]):.0%}" for n in counts[1:]]
        pairs = [harness.ratios(speeds[n], speeds["1"])["of_pairs"] for n in counts[1:]]
        rows.append(" | ".join([*cells, ", ".join(map(harness.each, pairs))]))
    return harness.table(" | ".join([*head, "as fast as one, each"]), rows)


def show_exchanges(sums: dict[str, dict[str, float]]) -> str:
    """Write a table of the time that an exchange takes."""
    rows = []
    for size in SIZES:
        microseconds = " | ".join(f"{found[str(size)]:,.0f} us" for found in sums.values())
        rows.append(f"{size:,} | {microseconds}")
    return harness.table(" | ".join(["numbers", *(f"{n} ranks" for n in sums)]), rows)


def main() -> None:
    parser = harness.make_parser(__doc__, repetitions=3)
    parser.add_argument("--ranks", default="1,2", help="numbers of them, of which 1 is the first")
    parser.add_argument("--sums", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.sums:
        time_exchanges()
        return
    counts = given.ranks.split(",")
    result = {**harness.describe(), "runs": {}, "sums": {}}
    for count in counts[1:]:
        ranks = torchrun("--standalone", f"--nproc_per_node={count}", "-m", "benchmarks.ranks")
        found = subprocess.check_output([*ranks, "--sums"], cwd=harness.ROOT)
        result["sums"][count] = json.loads(found)
    for name, flags in RUNS.items():
        variants = {count: partial(train, flags, int(count)) for count in counts}
        seeds = range(1, given.repetitions + 1)
        result["runs"][name] = harness.alternate(variants, seeds, f"{name}, ranks")
    harness.write_json("ranks/speed.json", result)
    exchanges = ["An exchange alone, on this machine:", show_exchanges(result["sums"])]
    parts = ["Medians.", show_runs(result["runs"], counts), *exchanges]
    harness.write_page("ranks/speed.md", __doc__, *parts, result=result)


if __name__ == "__main__":
    main()
