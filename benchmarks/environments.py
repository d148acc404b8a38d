"""Every environment that gymnasium registers: python -m benchmarks.environments [--side_by_side=2]
[ID ...]

Runs two iterations of main.py on each, or on those given only, without writing a table. Those that
do not train are refused, with the reason that main.py gives. Writes results/environments/README.md.
Needs the extra mujoco, and gymnasium[jax], for the environments that are made with them.
"""

import contextlib
import importlib
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium

from benchmarks import harness

SMALL = "--num_iterations=2 --num_envs=2 --num_steps=8 --num_workers=1 --num_minibatches=2"
MOST_SECONDS = 300


def attempt(env_name: str) -> str:
    """Say how main.py ended: trained, or the last line that it wrote to stderr."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        flags = [f"--env_name={env_name}", *f"{SMALL} {harness.QUIET} --run_dir={run_dir}".split()]
        try:
            done = subprocess.run(
                [*harness.MAIN, *flags],
                cwd=harness.ROOT,
                capture_output=True,
                text=True,
                timeout=MOST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {MOST_SECONDS} seconds"
        if done.returncode == 0 and harness.num_rows(run_dir) == 2:
            return "trained"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return lines[-1].removeprefix("error: ")


def attempt_all(names: list[str], side_by_side: int) -> dict[str, str]:
    """Try environments, some at a time; return how each ended."""
    found = {}
    with ThreadPoolExecutor(side_by_side) as pool:
        for name, result in zip(names, pool.map(attempt, names), strict=True):
            print(f"{name}: {result}", flush=True)
            found[name] = result
    return found


def main() -> None:
    parser = harness.make_parser(__doc__, side_by_side=2)
    parser.add_argument("ids", nargs="*", help="these only, without writing a table")
    given = parser.parse_args()
    if given.ids:
        attempt_all(given.ids, given.side_by_side)
        return
    with contextlib.suppress(ImportError):
        importlib.import_module("ale_py")  # which registers the games
    result = harness.describe("ale-py", "mujoco", "jax")
    found = attempt_all(sorted(gymnasium.registry), given.side_by_side)
    num_trained = list(found.values()).count("trained")
    rows = [f"{name} | {outcome.replace('|', '/')}" for name, outcome in found.items()]
    command = f"`python main.py --env_name=ID {SMALL}`"
    parts = [
        f"{command}: {num_trained} of {len(found)} train.",
        harness.table("environment | result", rows),
    ]
    harness.write_page("environments/README.md", __doc__, *parts, result=result)


if __name__ == "__main__":
    main()
