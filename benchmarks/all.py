"""Every benchmark of results/ but the learning tables: python -m benchmarks.all [NAME ...]

Runs COMMANDS of this file one after the other, or those that begin with a name, such as solve or
'solve --env=CartPole-v1', some hours on two cores, with nothing else to do on the machine. The last
one checks that the learning tables would come out the same: it trains the first ten iterations of
their runs again and compares every bit. Stable-Baselines3, sb3-contrib and MuJoCo are in the extra
bench. Left out are commits, which compares with another commit, digests, and policies, which makes
the pretrained ones.
"""

import shlex
import subprocess
import sys

from benchmarks import harness

# In an order in which what README.md quotes comes first.
COMMANDS = (
    "throughput --sizes=8,64 --repetitions=3",
    "throughput --scaling --repetitions=3",
    "solve --env=CartPole-v1 --sb3=3",
    "solve --env=Acrobot-v1 --sb3=3",
    "solve --env=MountainCar-v0 --sb3=1",
    "solve --env=LunarLander-v3 --sb3=1",
    "solve --env=BipedalWalker-v3 --sb3=1 --sb3_seconds=900"
    " --flags='--total_steps=1900000 --learning_rate=linear:0.0005'",
    "solve --env=PongNoFrameskip-v4 --stop_when='solved>=18' --sb3=1 --sb3_seconds=2900",
    "solve --stop_when=",
    "kills --runs=14 --loaded",
    "faults --sample=300",
    "latency",
    "ranks",
    "learning --seeds=0 --check",
)


def main() -> int:
    parser = harness.make_parser(__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of commands; all if none")
    names = parser.parse_args().names
    chosen = [command for command in COMMANDS if command.startswith(tuple(names) or "")]
    if not chosen:
        parser.error(f"give some of {', '.join(sorted({x.split()[0] for x in COMMANDS}))}")
    failed = []
    for command in chosen:
        print(f"python -m benchmarks.{command}", flush=True)
        line = [sys.executable, "-m", *shlex.split(f"benchmarks.{command}")]
        if subprocess.run(line, cwd=harness.ROOT).returncode:
            failed.append(command)
    print(f"ended with an error: {'; '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
