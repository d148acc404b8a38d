"""Seconds until training is under way: python -m benchmarks.startup [--repetitions=5]

Measured from starting the command that a user would give, its output not on a terminal, until its
first iteration begins and until it is finished, when its row is in metrics.csv (looked for every 10
ms; the process is then ended). The beginning is what the row says: as long before it as its
collecting and learning took. Worker processes, which start before it, may still be getting ready
then. Writes results/startup.json and a table, results/startup.md.
"""

from statistics import median

from benchmarks import harness

FLAGS = "--env_name=LunarLander-v2 --model=mlp"
MOMENTS = ("begins", "finished")


def start(_: int) -> harness.Result:
    """Start training and end it after its first iteration."""
    run = harness.train(FLAGS, only_first_row=True)
    return {
        "begins": run.startup_seconds,
        "finished": run.seconds_to_first_row,
        "steps": int(run.rows[0]["step"]),
    }


def main() -> None:
    given = harness.make_parser(__doc__, repetitions=5).parse_args()
    result = {**harness.describe(), "ours": f"python main.py {FLAGS}"}
    starts = harness.alternate({"start": start}, range(given.repetitions))["start"]
    result["steps"] = starts[0]["steps"]
    rows = []
    for moment in MOMENTS:
        values = [start[moment] for start in starts]
        found = {"median": median(values), "min": min(values), "max": max(values)}
        result[moment] = {**found, "values": values}
        rows.append(" | ".join([moment, *(f"{seconds:.2f}" for seconds in found.values())]))
    harness.write_json("startup.json", result)
    about = f"`{result['ours']}`, whose first iteration has {result['steps']:,} steps:"
    table = harness.table("first iteration | median | min | max", rows)
    harness.write_page("startup.md", __doc__, about, table, result=result)


if __name__ == "__main__":
    main()
