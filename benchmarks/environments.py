"""Run two iterations of main.py on every environment that gymnasium registers: python -m benchmarks.environments

Writes results/environments/README.md, a table with what came of each. Needs the extra mujoco, and
gymnasium[jax], for the environments that are made with them."""

import argparse
import contextlib
import importlib
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import gymnasium

ROOT = Path(__file__).parents[1]
SMALL = (
    "--num_iterations=2",
    "--num_envs=2",
    "--num_steps=8",
    "--num_workers=1",
    "--num_minibatches=2",
)
QUIET = ("--eval_episodes=0", "--logger=none", "--report=False")


def attempt(env_name: str) -> tuple[str, str]:
    """An environment's id, and how main.py ended: trained, or the last line that it wrote to stderr."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "main.py",
            f"--env_name={env_name}",
            *SMALL,
            *QUIET,
            f"--run_dir={folder}/run",
        ]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return env_name, "no end within 5 minutes"
        rows = (
            Path(folder, "run", "metrics.csv").read_text().splitlines()
            if done.returncode == 0
            else []
        )
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return env_name, "trained" if len(rows) == 3 else lines[-1].removeprefix("error: ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side_by_side", type=int, default=2)
    parser.add_argument("ids", nargs="*", help="these only, without writing a table")
    options = parser.parse_args()
    with contextlib.suppress(ImportError):
        importlib.import_module("ale_py")
    names = options.ids or sorted(gymnasium.registry)
    with ThreadPoolExecutor(options.side_by_side) as pool:
        results = []
        for name, result in pool.map(attempt, names):
            print(f"{name}: {result}", flush=True)
            results.append((name, result))
    if not options.ids:
        trained = [name for name, result in results if result == "trained"]
        packages = ", ".join(
            f"{name} {version(name)}" for name in ("gymnasium", "ale-py", "mujoco", "jax", "torch")
        )
        text = f"""# Every environment that gymnasium registers

`python -m benchmarks.environments`: two iterations of `python main.py --env_name=ID {" ".join(SMALL)}` each.
Python {platform.python_version()}, {packages}.

{len(trained)} of {len(results)} train; the others are refused, with the reason that main.py gives.

| environment | result |
| --- | --- |
"""
        text += "".join(f"| {name} | {result.replace('|', '/')} |\n" for name, result in results)
        (ROOT / "results" / "environments" / "README.md").write_text(text)


if __name__ == "__main__":
    main()
