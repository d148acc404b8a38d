"""What is learned: python -m benchmarks.learning [RUN ...] [--seeds 1 2 3] [--episodes 100]

Trains each environment that has a preset, CartPole by the values of the CleanRL tutorial (with separate networks and
with a shared one) and of Lightning Baselines3, CartPole without velocities with and without a memory, and Pong in three
ways, once for each seed and by the command that a user would give. Writes results/learning/: summary.json and
metrics.csv of every run, README.md, a table of all that are there, and Pong.png, their return against steps (needs
matplotlib, of the extra bench). With no seeds it only writes table and figure.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from matplotlib import pyplot

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "learning"
TUNED = sorted(path.stem for path in (ROOT / "ppo" / "presets").glob("*-v*.json"))
RUNS = {env_name: [f"--env_name={env_name}"] for env_name in TUNED}
RUNS["CartPole-v1-tutorial"] = [
    "--preset=none",
    "--env_id=CartPole-v1",
    "--total_timesteps=200000",
    "--learning_rate=2.5e-4",
    "--num_envs=4",
    "--num_steps=128",
    "--num_minibatches=4",
    "--update_epochs=4",
    "--gamma=0.99",
    "--gae_lambda=0.95",
    "--clip_coef=0.2",
    "--vf_coef=0.5",
    "--max_grad_norm=0.5",
    "--ent_coef=0",
    "--no_normalize_observations",
    "--no_normalize_rewards",
]
RUNS["CartPole-v1-shared"] = ["--env_name=CartPole-v1", "--preset=tutorial", "--share_trunk=True"]
RUNS["CartPole-v1-lightning"] = ["--env_name=CartPole-v1", "--preset=lightning"]
HIDDEN = [
    "--env_name=examples.own_environment:HiddenVelocity",
    "--preset=CartPole-v1",
    "--total_steps=200000",
]
RUNS["HiddenVelocity-lstm"] = [*HIDDEN, "--model=lstm"]
RUNS["HiddenVelocity-mlp"] = [*HIDDEN, "--model=mlp"]
PONG = ["--env=PongNoFrameskip-v4", "--end_on_life_loss=True", "--clip_rewards=True"]
RUNS["Pong"] = [*PONG, "--model=cnn", "--total_steps=2000000"]
RUNS["Pong-float32"] = [*PONG, "--model=cnn", "--precision=float32", "--total_steps=600000"]
RUNS["Pong-single-frame"] = [*PONG, "--model=cnn_small", "--frame_stack=1", "--total_steps=2000000"]
HEADER = """# What is learned

Written by `python -m benchmarks.learning`, which runs these commands for each SEED:

{commands}

- last 100: mean return of the last 100 episodes of training, exploration included
- evaluation: mean and standard deviation over episodes played after training with the most likely actions and frozen
  statistics; returns are the environment's own, undiscounted
- seeds 1 to 3 of LunarLander, BipedalWalker and CartPole-v1 are not held out, for presets were tuned on seeds among 1
  to 5; seeds 6 and above are. All others are held out: Pong's preset was chosen on seed 11, those of Pendulum and
  MountainCarContinuous on seeds 11 and 12
- HiddenVelocity is CartPole that shows positions only, in examples/own_environment.py
- seconds: of training alone; the machine (2 cores) was in other use too, so they are no benchmark
- CartPole-v1, LunarLander and LunarLanderContinuous by their presets were trained again when the mlp had come to learn
  in numpy, which changed rounding; all others were trained before. Standardising advantages before the loss changed it
  once more after all of them: a seed now leads to other numbers than these, by as much as another seed does
- the runs of Pong had one of the two cores each; "stopped before": ended by SIGTERM, Pong-s1 and Pong-s2 when the mean
  return of their last 100 games had passed 18.3, and Pong-single-frame at the end of the time that there was for it

![Pong](Pong.png)

| run | seed | steps | last 100 | evaluation | episodes evaluated | seconds |
| --- | --- | --- | --- | --- | --- | --- |
"""


def train(run: str, seed: int, episodes: int) -> None:
    """Run the command in a folder that is thrown away, and keep the small files."""
    kept = RESULTS / f"{run}-s{seed}"
    flags = [*RUNS[run], f"--seed={seed}", f"--eval_episodes={episodes}"]
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        command = [
            sys.executable,
            "main.py",
            *flags,
            "--logger=none",
            "--report=False",
            f"--run_dir={run_dir}",
        ]
        subprocess.run(command, check=True, cwd=ROOT)
        kept.mkdir(parents=True, exist_ok=True)
        for name in ("summary.json", "metrics.csv"):
            shutil.copy(run_dir / name, kept / name)


def table(episodes: int) -> str:
    """Markdown: the commands, and a row for each run in the results."""
    commands = (
        f"    python main.py {' '.join(flags)} --seed=SEED --eval_episodes={episodes}"
        for flags in RUNS.values()
    )
    lines = []
    for folder in sorted(path.parent for path in RESULTS.glob("*/metrics.csv")):
        run, seed = folder.name.rsplit("-s", 1)
        last = _rows(folder)[-1]
        evaluated, played = "stopped before", 0
        if (folder / "summary.json").exists():
            evaluation = json.loads((folder / "summary.json").read_text())["evaluation"]
            evaluated, played = (
                f"{evaluation['mean']:.1f} ± {evaluation['std']:.1f}",
                evaluation["episodes"],
            )
        numbers = f"{int(last['step']):,} | {float(last['episode_return_mean']):.1f} | {evaluated} | {played}"
        lines.append(f"| {run} | {seed} | {numbers} | {float(last['seconds']):,.0f} |\n")
    return HEADER.format(commands="\n".join(commands)) + "".join(lines)


def _rows(folder: Path) -> list[dict[str, str]]:
    """A run's metrics from its first finished episode on."""
    with (folder / "metrics.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["episode_return_mean"]]


def draw() -> None:
    """Return against steps of all runs of Pong."""
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for folder in sorted(RESULTS.glob("Pong*/")):
        rows = _rows(folder)
        steps, returns = (
            [float(row[name]) for row in rows] for name in ("step", "episode_return_mean")
        )
        axes.plot(steps, returns, label=folder.name)
    axes.axhline(18, color="gray", linewidth=0.5)
    axes.set(
        xlabel="agent steps", ylabel="mean return of the last 100 games", title="PongNoFrameskip-v4"
    )
    axes.legend()
    figure.savefig(RESULTS / "Pong.png", dpi=100, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs="*", default=list(RUNS), metavar="RUN", help=f"of {', '.join(RUNS)}"
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    for run in arguments.runs:
        for seed in arguments.seeds:
            train(run, seed, arguments.episodes)
    (RESULTS / "README.md").write_text(table(arguments.episodes))
    draw()
    print((RESULTS / "README.md").read_text())


if __name__ == "__main__":
    main()
