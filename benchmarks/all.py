"""Every benchmark of results/ but the learning tables: python -m benchmarks.all [NAME ...]

Runs the commands of the table below one after the other, or those that begin with a name, such as
solve or 'solve --env=CartPole-v1', some six hours on two cores, with nothing else to do on the
machine. A command that has succeeded at this commit is not run again: after an interruption the
same command continues. The last one checks that the learning tables would come out the same: it
trains the first ten iterations of their runs again and compares every bit.
Stable-Baselines3, sb3-contrib and MuJoCo are in the extra bench; hosts needs root. Left out are
third_party, which needs more packages, and commits, which compares with another commit. Writes
results/all.json and README.md.
"""

import shlex
import subprocess
import sys
import time

from benchmarks import harness

RESULTS = "all.json"
# In an order in which what README.md quotes comes first.
COMMANDS = (
    "startup",
    "throughput --repetitions=5",
    "throughput --workloads=all --repetitions=5",
    "throughput --scaling",
    "solve --env=CartPole-v1 --sb3=5",
    "solve --env=Acrobot-v1 --sb3=5",
    "solve --env=MountainCar-v0 --sb3=1",
    "solve --env=LunarLander-v3 --sb3=1",
    "solve --env=BipedalWalker-v3 --sb3=1 --sb3_seconds=900"
    " --flags='--total_steps=1900000 --learning_rate=linear:0.0005'",
    "solve --env=PongNoFrameskip-v4 --stop_when='solved>=18' --sb3=1 --sb3_seconds=2900",
    "solve --stop_when=",
    "solve --stop_when= --flags=--overlap=True --name=LunarLander-v3-overlap",
    "kills",
    "soak",
    "faults",
    "price",
    "pixels",
    "loggers",
    "env_metrics",
    "choices",
    "arithmetic",
    "machines",
    "ranks",
    "hosts",
    "fine_tuning",
    "environments",
    "compare --steps=500000",
    "learning --seeds=0 --check",
)


def run(command: str) -> harness.Result:
    """Run a benchmark, and return its exit code and the minutes that it took."""
    start = time.perf_counter()
    line = [sys.executable, "-m", *shlex.split(f"benchmarks.{command}")]
    code = subprocess.run(line, cwd=harness.ROOT).returncode
    return {"exit_code": code, "minutes": (time.perf_counter() - start) / 60}


def rows(done: harness.Result) -> list[str]:
    """Return a row of the table for each command that has been run."""
    return [
        f"`python -m benchmarks.{command}` | {found['minutes']:.1f} | {found['commit']} | "
        f"{'as it should' if found['exit_code'] == 0 else 'with an error'}"
        for command in COMMANDS
        if (found := done.get(command))
    ]


def main() -> int:
    parser = harness.make_parser(__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of commands in the table; all if none")
    names = parser.parse_args().names
    chosen = [command for command in COMMANDS if command.startswith(tuple(names) or "")]
    if not chosen:
        parser.error(f"give some of {', '.join(sorted({x.split()[0] for x in COMMANDS}))}")
    about = harness.describe_machine()
    done = harness.read_all("").get("all", {})
    for command in chosen:
        found = done.get(command, {})
        if (found.get("commit"), found.get("exit_code")) == (about["commit"], 0):
            continue
        print(f"python -m benchmarks.{command}", flush=True)
        done[command] = {**about, **run(command)}
        harness.write_json(RESULTS, done)
        head = "command | minutes | commit | ended"
        harness.write_page("README.md", __doc__, harness.table(head, rows(done)))
    return max(done[command]["exit_code"] for command in chosen)


if __name__ == "__main__":
    sys.exit(main())
