"""How speed and memory grow with workers and environments: python -m benchmarks.throughput
--scaling

Speed against workers is that of 64 environments. Writes results/throughput/scaling.json and
scaling.png.
"""

from statistics import median

from benchmarks import harness
from benchmarks.trainers import GAME, NUM_STEPS, OURS, PIXELS, memory_of, run_ours

SIZES = {"LunarLander-v3": (8, 16, 64, 256, 1024), GAME: (8, 16, 64, 256)}
SIZE = 64  # where the number of workers changes
LEAST_STEPS = 65_536  # of a run, but Pong's


def measure(result: harness.Result, extra: str, repetitions: int) -> None:
    """Measure speed and memory for every number of environments or of workers, and draw them."""
    cores = result["cores"]
    points = result["points"] = []
    for env_name, sizes in SIZES.items():
        by_size = {(min(cores, size), size) for size in sizes}
        by_workers = {(num_workers, SIZE) for num_workers in range(1, cores + 1)}
        usual = PIXELS if env_name == GAME else OURS
        for num_workers, size in sorted(by_size | by_workers):
            flags = f"{usual} --num_workers={num_workers} --num_envs={size} {extra}"
            point = {"env_name": env_name, "num_workers": num_workers, "num_envs": size}
            points.append({**point, **measure_point(env_name, size, flags, repetitions)})
            print(points[-1], flush=True)
    harness.write_json("throughput/scaling.json", result)
    draw(points, cores)


def measure_point(env_name: str, size: int, flags: str, repetitions: int) -> harness.Result:
    """Measure the median speed, and the memory of a run of two iterations."""
    iteration = size * NUM_STEPS
    num_iterations = 3
    if env_name != GAME:
        num_iterations = max(3, LEAST_STEPS // iteration)
    steps = num_iterations * iteration
    runs = [run_ours(env_name, steps, flags, seed) for seed in range(1, repetitions + 1)]
    speeds = [run["steps_per_second"] for run in runs]
    memory = memory_of(env_name, 2 * iteration, flags)
    return {"memory_mib": memory, "steps_per_second": median(speeds), "each": speeds}


def draw(points: list[harness.Result], cores: int) -> None:
    """Draw speed against workers, speed against environments, and memory against environments."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for env_name in SIZES:
        own = [point for point in points if point["env_name"] == env_name]
        by_workers = [point for point in own if point["num_envs"] == SIZE]
        by_size = [point for point in own if point["num_workers"] == min(cores, point["num_envs"])]
        for ax, shown, x, y in (
            (axes[0], by_workers, "num_workers", "steps_per_second"),
            (axes[1], by_size, "num_envs", "steps_per_second"),
            (axes[2], by_size, "num_envs", "memory_mib"),
        ):
            values = [point[y] for point in shown]
            ax.plot([point[x] for point in shown], values, marker="o", label=env_name)
    axes[0].set(xlabel=f"workers, for {SIZE} environments", ylabel="steps per second", yscale="log")
    axes[0].set_xticks(range(1, cores + 1))
    axes[1].set(xlabel="environments", ylabel="steps per second", yscale="log")
    axes[2].set(xlabel="environments", ylabel="MiB at the most")
    for ax in axes[1:]:
        ax.set_xscale("log", base=2)
    axes[0].legend()
    harness.save_figure("throughput/scaling.png", figure)
