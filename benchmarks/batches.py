"""EnvPool's batches beside gymnasium's environments, one by one: python -m benchmarks.batches
[--repetitions=5] [--envs=...]

Trains by main.py on both in turn, the order reversed each time, with 64 environments, two workers
and the same flags. The speed is in environment steps per second from the end of the first iteration
to the end of the last. Needs envpool. The machine should have nothing else to do. Writes
results/batches/README.md and batches.json.
"""

from functools import partial
from statistics import median

from benchmarks import harness

FLAGS = f"{harness.QUIET} --num_workers=2 --seed=1 --preset=none --num_envs=64 --num_steps=128"
RUNS = {  # steps
    "LunarLander-v3": 98304,
    "BipedalWalker-v3": 49152,
    "CartPole-v1": 196608,
    "HalfCheetah-v5": 65536,
}


def measure(name: str, repetitions: int) -> harness.Result:
    """Train on both in turn; return the speeds of all runs, and their ratios."""

    def run_once(prefix: str, _: int) -> dict[str, float]:
        line = f"--env_name={prefix}{name} {FLAGS} --total_steps={RUNS[name]}"
        run = harness.train(line)
        return {"speed": run.steps_per_second, "learning": share_of_learning(run)}

    variants = {"envpool": partial(run_once, "EnvPool/"), "gymnasium": partial(run_once, "")}
    found = harness.alternate(variants, range(repetitions), name)
    speeds = {kind: [run["speed"] for run in runs] for kind, runs in found.items()}
    learning = {kind: median(run["learning"] for run in runs) for kind, runs in found.items()}
    ratios = harness.ratios(speeds["envpool"], speeds["gymnasium"])
    return {**speeds, **ratios, "learning": learning}


def share_of_learning(run: harness.Run) -> float:
    """Return which share of an iteration's time is learning, after the first iteration."""
    rows = run.rows[1:]
    learning = sum(float(row["seconds_learning"]) for row in rows)
    return learning / (learning + sum(float(row["seconds_collecting"]) for row in rows))


def main() -> None:
    given = harness.make_parser(__doc__, repetitions=5, envs=",".join(RUNS)).parse_args()
    result = {**harness.describe("envpool"), "runs": {}}
    for name in given.envs.split(","):
        result["runs"][name] = measure(name, given.repetitions)
    rows = []
    for name, found in result["runs"].items():
        speeds = " | ".join(f"{median(found[kind]):,.0f}" for kind in ("envpool", "gymnasium"))
        shares = " | ".join(f"{found['learning'][kind]:.0%}" for kind in ("envpool", "gymnasium"))
        pairs = harness.each(found["of_pairs"])
        rows.append(f"{name} | {speeds} | {found['of_medians']:.2f} | {pairs} | {shares}")
    head = (
        "64 environments, steps per second | EnvPool | gymnasium | ratio of medians | each pair | "
        "share of learning, EnvPool | gymnasium"
    )
    medians = f"Medians of {given.repetitions}. Learning is the same work in both."
    table = harness.table(head, rows)
    harness.write_json("batches/batches.json", result)
    harness.write_page("batches/README.md", __doc__, medians, table, result=result)


if __name__ == "__main__":
    main()
