"""Every benchmark, one after the other: python -m benchmarks.all [NAME ...] [--quick]

NAME is the beginning of a command, such as solve. All take most of a day on two cores, with nothing
else to do on the machine. Stable-Baselines3 must be installed (pip install stable-baselines3), and
EnvPool for its row of throughput; MuJoCo is in the extra mujoco. --quick: each takes some seconds,
and writes nothing."""

import shlex
import subprocess
import sys

from benchmarks import harness

COMMANDS = (
    "throughput",
    "solve --envs=CartPole-v1,Acrobot-v1 --sb3=3",
    "solve --envs=MountainCar-v0,LunarLander-v3 --sb3=1",
    "solve --envs=BipedalWalker-v3,PongNoFrameskip-v4",
    "kills --loaded",
    "latency",
    "policies",
    "learning",
)


def main() -> int:
    parser = harness.make_parser(__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of commands (default: all)")
    given = parser.parse_args()
    commands = [x for x in COMMANDS if x.startswith(tuple(given.names) or "")]
    if given.quick:
        commands = [f"{x} --quick" for x in dict.fromkeys(y.split()[0] for y in commands)]
    if not commands:
        parser.error(f"give some of {', '.join(dict.fromkeys(x.split()[0] for x in COMMANDS))}")
    failed = []
    for command in commands:
        print(f"python -m benchmarks.{command}", flush=True)
        line = [sys.executable, "-m", *shlex.split(f"benchmarks.{command}")]
        if subprocess.run(line, cwd=harness.ROOT).returncode:
            failed.append(command)
    print(f"failed: {'; '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
