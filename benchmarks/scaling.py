"""How speed and memory grow with workers and environments: python -m benchmarks.throughput --scaling

Speed against workers is that of 64 environments. Writes results/throughput/scaling.json and scaling.png."""

import json
import tempfile
from statistics import median
from typing import Any

from benchmarks.common import ROOT, peak_memory
from benchmarks.trainers import GAME, NUM_STEPS, OURS, PIXELS, our_command, run_ours

RESULTS = ROOT / "results" / "throughput"
SIZES = {"LunarLander-v3": (8, 16, 64, 256, 1024), GAME: (8, 16, 64, 256)}
SIZE = 64  # where the number of workers changes
LEAST_STEPS = 65_536  # of a run, but Pong's


def measure(about: dict[str, Any], extra: dict[str, Any], repetitions: int) -> None:
    """Medians of speed, and memory in one run of two iterations, for every number of environments or of workers."""
    cores, points = about["cores"], []
    for env_name, sizes in SIZES.items():
        workers_and_sizes = {(min(cores, size), size) for size in sizes} | {
            (w, SIZE) for w in range(1, cores + 1)
        }
        for num_workers, size in sorted(workers_and_sizes):
            flags = {
                **(PIXELS if env_name == GAME else OURS),
                "num_workers": num_workers,
                "num_envs": size,
                **extra,
            }
            iterations = max(3, 0 if env_name == GAME else LEAST_STEPS // (size * NUM_STEPS))
            run = (env_name, iterations * size * NUM_STEPS)
            speeds = [
                run_ours(*run, seed, flags)["steps_per_second"]
                for seed in range(1, repetitions + 1)
            ]
            with tempfile.TemporaryDirectory() as folder:
                command = our_command(env_name, 2 * size * NUM_STEPS, 1, flags)
                memory = peak_memory(*command, f"--run_dir={folder}/run")
            point = {
                "env_name": env_name,
                "num_workers": num_workers,
                "num_envs": size,
                "memory_mib": memory,
            }
            points.append({**point, "steps_per_second": median(speeds), "each": speeds})
            print(*(f"{name}: {value}" for name, value in points[-1].items()), sep=", ", flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "scaling.json").write_text(json.dumps({**about, "points": points}, indent=2) + "\n")
    draw(points, cores)


def draw(points: list[dict[str, Any]], cores: int) -> None:
    """Speed against workers, speed against environments, memory against environments; a line for each environment."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for env_name in SIZES:
        own = [point for point in points if point["env_name"] == env_name]
        by_workers = [point for point in own if point["num_envs"] == SIZE]
        by_size = [point for point in own if point["num_workers"] == min(cores, point["num_envs"])]
        lines = (
            (by_workers, "num_workers", "steps_per_second"),
            (by_size, "num_envs", "steps_per_second"),
        )
        for ax, (shown, x, y) in zip(
            axes, (*lines, (by_size, "num_envs", "memory_mib")), strict=True
        ):
            ax.plot(
                [point[x] for point in shown],
                [point[y] for point in shown],
                marker="o",
                label=env_name,
            )
    axes[0].set(xlabel=f"workers, for {SIZE} environments", ylabel="steps per second", yscale="log")
    axes[0].set_xticks(range(1, cores + 1))
    axes[1].set(xlabel="environments", ylabel="steps per second", yscale="log")
    axes[2].set(xlabel="environments", ylabel="MiB at the most")
    for ax in axes[1:]:
        ax.set_xscale("log", base=2)
    axes[0].legend()
    figure.savefig(RESULTS / "scaling.png", dpi=100, bbox_inches="tight")
