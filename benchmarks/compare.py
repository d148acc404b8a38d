"""What is learned beside Stable-Baselines3: python -m benchmarks.compare [--steps=1000000] [--seeds 1 2 3]

LunarLander-v3 by the values of zplizzi/pytorch-ppo's comparison with OpenAI Baselines (12 environments x 128 steps, 4
epochs x 4 minibatches, three hidden layers of 64), for both: --preset=baselines-mlp here, the same for
Stable-Baselines3's PPO, which takes the place of Baselines because that no longer installs. Both normalise observations
and rewards. Writes results/compare/: returns.csv, the mean return of the last 100 episodes after each iteration of each
run, returns.png and README.md.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "compare"
Curve = list[tuple[int, float]]  # (step, mean return of the last 100 episodes)
OURS, SB3 = "this trainer", "Stable-Baselines3"


def run_ours(steps: int, seed: int) -> Curve:
    flags = [
        f"--total_steps={steps}",
        f"--seed={seed}",
        "--eval_episodes=0",
        "--logger=none",
        "--report=False",
    ]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "main.py",
            "--env_name=LunarLander-v3",
            "--preset=baselines-mlp",
            *flags,
        ]
        subprocess.run([*command, f"--run_dir={folder}"], check=True, cwd=ROOT)
        with Path(folder, "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
    return [
        (int(row["step"]), float(row["episode_return_mean"]))
        for row in rows
        if row["episode_return_mean"]
    ]


def run_sb3(steps: int, seed: int) -> Curve:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    class Watch(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.curve: Curve = []

        def _on_rollout_end(self) -> None:
            episodes = [episode["r"] for episode in self.model.ep_info_buffer]
            self.curve += [(self.num_timesteps, fmean(episodes))] if episodes else []

        def _on_step(self) -> bool:
            return True

    torch.set_num_threads(1)
    envs = VecNormalize(make_vec_env("LunarLander-v3", n_envs=12, seed=seed), gamma=0.99)
    layers = {"net_arch": [64, 64, 64], "activation_fn": torch.nn.Tanh}
    sizes = {"n_steps": 128, "batch_size": 12 * 128 // 4, "n_epochs": 4}
    clips = {"clip_range": 0.1, "clip_range_vf": 0.1, "max_grad_norm": 0.5}
    weights = {"ent_coef": 0.01, "vf_coef": 0.25}  # half of ours, whose value loss has a factor 1/2
    rates = {"learning_rate": 2.5e-4, "gamma": 0.99, "gae_lambda": 0.95}
    model = PPO(
        "MlpPolicy",
        envs,
        policy_kwargs=layers,
        seed=seed,
        device="cpu",
        **sizes,
        **clips,
        **weights,
        **rates,
    )
    watch = Watch()
    model.learn(steps, callback=watch)
    return watch.curve


def write(curves: dict[tuple[str, int], Curve], steps: int) -> None:
    from matplotlib import pyplot

    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "returns.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["trainer", "seed", "step", "episode_return_mean"])
        writer.writerows(
            [*run, step, f"{mean:.2f}"] for run, curve in curves.items() for step, mean in curve
        )
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for (trainer, seed), curve in curves.items():
        colour = "tab:blue" if trainer == OURS else "tab:orange"
        axes.plot(
            *zip(*curve, strict=True),
            color=colour,
            alpha=0.8,
            label=trainer if seed == min(curves)[1] else None,
        )
    axes.set(xlabel="steps", ylabel="mean return of the last 100 episodes", title="LunarLander-v3")
    axes.legend()
    figure.savefig(RESULTS / "returns.png", dpi=100, bbox_inches="tight")
    rows = "".join(
        f"| {trainer} | {seed} | {_at(curve, steps // 4):.0f} | {_at(curve, steps // 2):.0f} | {curve[-1][1]:.0f} |\n"
        for (trainer, seed), curve in curves.items()
    )
    (RESULTS / "README.md").write_text(f"""# What is learned, beside Stable-Baselines3

`python -m benchmarks.compare --steps={steps}`, whose docstring tells what is run. The mean return of the last 100
episodes of training, in the environment's own rewards; every iteration's is in [returns.csv](returns.csv).

![Returns](returns.png)

| trainer | seed | after {steps // 4:,} steps | after {steps // 2:,} | at the end |
| --- | --- | --- | --- | --- |
{rows}""")


def _at(curve: Curve, steps: int) -> float:
    """What it was after so many steps."""
    return max(point for point in curve if point[0] <= steps)[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    options = parser.parse_args()
    curves: dict[tuple[str, int], Curve] = {}
    for seed in options.seeds:
        for trainer, run in ((OURS, run_ours), (SB3, run_sb3)):
            curves[trainer, seed] = run(options.steps, seed)
            print(trainer, seed, curves[trainer, seed][-1], flush=True)
    write(dict(sorted(curves.items())), options.steps)


if __name__ == "__main__":
    main()
