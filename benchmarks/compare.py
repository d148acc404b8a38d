"""What is learned beside Stable-Baselines3: python -m benchmarks.compare [--steps=1000000] [--seeds
1 2 3]

LunarLander-v3 by the values of zplizzi/pytorch-ppo's comparison with OpenAI Baselines (12
environments x 128 steps, 4 epochs x 4 minibatches, three hidden layers of 64), for both:
--preset=baselines-mlp here, the same for Stable-Baselines3's PPO, which takes the place of
Baselines because that no longer installs. Both normalise observations and rewards. The table shows
the mean return of the last 100 episodes of training, in the environment's own rewards; that after
each iteration of each run is in [returns.csv](returns.csv). Writes results/compare/: returns.csv,
returns.png and README.md.
"""

import csv
from functools import partial

from benchmarks import harness
from benchmarks.trainers import learn_by_sb3

Curve = list[tuple[int, float]]  # (step, mean return of the last 100 episodes)
OURS = "this trainer"
SB3 = "Stable-Baselines3"


def run_ours(steps: int, seed: int) -> Curve:
    flags = f"--env_name=LunarLander-v3 --preset=baselines-mlp {harness.QUIET}"
    run = harness.train(f"{flags} --total_steps={steps} --seed={seed}")
    known = [row for row in run.rows if row["episode_return_mean"]]
    return [(int(row["step"]), float(row["episode_return_mean"])) for row in known]


def run_sb3(steps: int, seed: int) -> Curve:
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    envs = VecNormalize(make_vec_env("LunarLander-v3", n_envs=12, seed=seed), gamma=0.99)
    layers = {"net_arch": [64, 64, 64], "activation_fn": torch.nn.Tanh}
    sizes = {"n_steps": 128, "batch_size": 12 * 128 // 4}
    found = learn_by_sb3(envs, steps, seed=seed, policy_kwargs=layers, **sizes)
    return [(each.step, each.mean_return) for each in found if each.mean_return is not None]


def write_curves(curves: dict[str, dict[int, Curve]]) -> None:
    """Write returns.csv."""
    with harness.result_path("compare/returns.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["trainer", "seed", "step", "episode_return_mean"])
        for trainer, runs in curves.items():
            for seed, curve in runs.items():
                writer.writerows([trainer, seed, step, f"{mean:.2f}"] for step, mean in curve)


def draw(curves: dict[str, dict[int, Curve]]) -> None:
    """Draw returns.png: all curves, a colour for each trainer."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for trainer, colour in ((SB3, "tab:orange"), (OURS, "tab:blue")):
        for curve in curves[trainer].values():
            steps, means = zip(*curve, strict=True)
            axes.plot(steps, means, color=colour, alpha=0.8)
        axes.lines[-1].set_label(trainer)  # once in the legend is enough
    axes.set(xlabel="steps", ylabel="mean return of the last 100 episodes", title="LunarLander-v3")
    axes.legend()
    harness.save_figure("compare/returns.png", figure)


def return_after(curve: Curve, steps: int) -> float:
    """Look up the last mean return after at most so many steps."""
    return max(point for point in curve if point[0] <= steps)[1]


def main() -> None:
    parser = harness.make_parser(__doc__, steps=1_000_000)
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    given = parser.parse_args()
    result = harness.describe("stable-baselines3")
    variants = {SB3: partial(run_sb3, given.steps), OURS: partial(run_ours, given.steps)}
    found = harness.alternate(variants, given.seeds)
    curves = {name: dict(zip(given.seeds, runs, strict=True)) for name, runs in found.items()}
    write_curves(curves)
    draw(curves)
    moments = (given.steps // 4, given.steps // 2, given.steps)
    rows = []
    for trainer, runs in curves.items():
        for seed, curve in sorted(runs.items()):
            means = [f"{return_after(curve, moment):.0f}" for moment in moments]
            rows.append(" | ".join([trainer, str(seed), *means]))
    head = " | ".join(["trainer | seed", *(f"after {moment:,} steps" for moment in moments)])
    parts = ["![Returns](returns.png)", harness.table(head, rows)]
    harness.write_page("compare/README.md", __doc__, *parts, result=result)


if __name__ == "__main__":
    main()
