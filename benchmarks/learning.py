"""What the presets learn: python -m benchmarks.learning [--seeds 1 2 3] [--episodes 100] [ENVIRONMENT ...]

Trains each environment that has a preset, once for each seed, by the command that a user would give, and writes
results/learning/: every run's summary.json and metrics.csv, and a table of them all, README.md.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "learning"
ENVIRONMENTS = [path.stem for path in sorted((ROOT / "ppo" / "presets").glob("*.json"))]


def train(env_name: str, seed: int, episodes: int) -> None:
    """One run in a folder of its own, of which the small files are kept."""
    kept = RESULTS / f"{env_name}-s{seed}"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        subprocess.run([*command(env_name, seed, episodes), f"--run_dir={run}", "--logger=none"], check=True, cwd=ROOT)
        kept.mkdir(parents=True, exist_ok=True)
        for name in ("summary.json", "metrics.csv"):
            shutil.copy(run / name, kept / name)


def command(env_name: str, seed: int, episodes: int) -> list[str]:
    return [sys.executable, "main.py", f"--env_name={env_name}", f"--seed={seed}", f"--eval_episodes={episodes}"]


def table(episodes: int) -> str:
    """Markdown: a row for each run that is in the results."""
    shown = shlex.join(["python", *command("ENVIRONMENT", 0, episodes)[1:]]).replace("seed=0", "seed=SEED")
    lines = [
        "# What the presets learn",
        "",
        f"Written by `python -m benchmarks.learning --episodes={episodes}`, which calls, for each row,",
        f"`{shown}`.",
        "",
        "last 100: mean return of the last 100 training episodes, with exploration.",
        f"evaluation: mean and standard deviation of {episodes} episodes after training, most likely actions,",
        "frozen statistics. Returns are the environment's own, undiscounted. The machine was also in other use, so",
        "seconds are no benchmark.",
        "",
        "| environment | seed | steps | last 100 | evaluation | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for path in sorted(RESULTS.glob("*/summary.json")):
        s = json.loads(path.read_text())
        evaluation = f"{s['evaluation']['mean']:.1f} ± {s['evaluation']['std']:.1f}"
        row = (
            s["env_name"],
            s["seed"],
            f"{s['steps']:,}",
            f"{s['mean_return']:.1f}",
            evaluation,
            f"{s['seconds']:.0f}",
        )
        lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environments", nargs="*", default=ENVIRONMENTS, metavar="ENVIRONMENT")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    for env_name in arguments.environments:
        for seed in arguments.seeds:
            train(env_name, seed, arguments.episodes)
            (RESULTS / "README.md").write_text(table(arguments.episodes))
    print(table(arguments.episodes))


if __name__ == "__main__":
    main()
