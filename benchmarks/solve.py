"""Seconds until an environment is solved: python -m benchmarks.solve [--seeds=5]
[--env=LunarLander-v3] [--flags="..."]

Measured from starting the command that a user would give, with its tuned preset, its output not on
a terminal, until it has ended with an evaluation over 100 deterministic episodes; the first start
after installing is slower. Writes a file for each environment, or for --name, and a table of them
all, to results/solve/. The machine should have nothing else to do.
"""

from functools import partial
from statistics import median

from benchmarks import harness


def show() -> list[str]:
    """Write a table of all files in the results."""
    rows = []
    last = ""
    for result in harness.read_all("solve").values():
        seconds = [run["seconds"] for run in result["runs"]]
        returns = [run["evaluation"] for run in result["runs"]]
        times = f"{median(seconds):.1f} | {harness.each(seconds, '.1f')}"
        evaluations = f"{median(returns):.1f} | {harness.each(returns, '.1f')}"
        steps = f"{result['runs'][0]['steps']:,}"
        rows.append(f"`{result['command']}` | {times} | {steps} | {evaluations}")
        last = f"The last row was measured on {harness.machine(result)}."
    head = "command | seconds, median | each | steps | evaluation, median | each"
    return [harness.table(head, rows), last]


def solve(flags: str, seed: int) -> harness.Result:
    run = harness.train(f"{flags} --seed={seed}")
    evaluation = run.summary["evaluation"]["mean"]
    return {"seconds": run.seconds, "steps": run.summary["steps"], "evaluation": evaluation}


def main() -> None:
    parser = harness.make_parser(__doc__, env="LunarLander-v3")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 1 on")
    parser.add_argument("--flags", default="", help="more flags of main.py")
    parser.add_argument("--name", help="of the file; the environment's if left out")
    given = parser.parse_args()
    if given.seeds < 1:
        parser.error("give at least one of --seeds")
    flags = " ".join(f"--env_name={given.env} {given.flags} --eval_episodes=100".split())
    name = given.name or given.env
    result = {**harness.describe(), "command": f"python main.py {flags} --seed=SEED"}
    variants = {name: partial(solve, flags)}
    result["runs"] = harness.alternate(variants, range(1, given.seeds + 1))[name]
    harness.write_json(f"solve/{name}.json", result)
    harness.write_page("solve/README.md", __doc__, *show())


if __name__ == "__main__":
    main()
