"""Stepping and memory on pixels: python -m benchmarks.pixels [step|memory ...] [--repetitions=3]

step: Pong stepped by one process with the same random actions, ours and gymnasium's
AtariPreprocessing with FrameStackObservation in turn, each observation copied to an array as a
worker does.

memory: main.py on Pong, 64 environments x 128 steps, 4 minibatches of 2,048: the largest sum over
all its processes of resident memory, pages that several share counted once, beside what arithmetic
says that it should be.

The machine should have nothing else to do. Writes results/pixels/: a file for each, and README.md,
which tells them.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.trainers import GAME, PIXELS, memory_of

MIB = 2**20
# The trainer and two workers as they are before they do anything.
WORKER = (
    "import sys, time, torch, ale_py, cv2, gymnasium; "
    "torch.ones(9, 9).mm(torch.ones(9, 9)); time.sleep(5)"
)
THREE_PROCESSES = f"""import subprocess, sys
workers = [subprocess.Popen([sys.executable, "-c", {WORKER!r}]) for _ in range(2)]
import rich.live, safetensors.torch
{WORKER}"""


def step_speed(ours: bool, num_steps: int) -> float:
    """Measure steps per second in this process."""
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    from ppo.config.config import Config
    from ppo.config.resolve import resolve
    from ppo.envs.make import make_env

    own = make_env(resolve(Config(env_name=GAME))[0])
    theirs = FrameStackObservation(
        AtariPreprocessing(gymnasium.make(GAME, disable_env_checker=True)), 4
    )
    env: Any = own if ours else theirs
    row = np.zeros(env.observation_space.shape, np.uint8)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(env.action_space.n, size=num_steps).tolist()
    start = time.perf_counter()
    for action in actions:
        observation, _, terminated, truncated, _ = env.step(action)
        row[:] = env.reset()[0] if terminated or truncated else observation
    return num_steps / (time.perf_counter() - start)


def measure_stepping(repetitions: int, num_steps: int = 5000) -> harness.Result:
    """Step both in turn, each time in a fresh process."""

    def run_once(ours: bool, _: int) -> float:
        return harness.in_fresh_process(step_speed, ours, num_steps)

    variants = {"ours": partial(run_once, True), "gymnasium": partial(run_once, False)}
    speeds = harness.alternate(variants, range(repetitions))
    medians = {chain: median(values) for chain, values in speeds.items()}
    return {"medians": medians, "ratio": medians["ours"] / medians["gymnasium"], "speeds": speeds}


def measure_memory() -> harness.Result:
    """Measure the memory of a run of three iterations, and add up what it should be."""
    num_envs, num_steps, num_minibatches = 64, 128, 4
    flags = f"{PIXELS} --num_envs={num_envs} --num_workers=2"
    steps = 3 * num_envs * num_steps
    measured = memory_of(GAME, steps, flags)
    pixels = 84 * 84 * 4  # of one observation
    weights = 1_687_719  # of the Nature CNN with 6 actions
    rows = num_envs * num_steps // num_minibatches
    conv1, conv2, conv3, hidden = 20 * 20 * 32, 9 * 9 * 64, 7 * 7 * 64, 512
    num_activations = conv1 + conv2 + conv3 + hidden
    num_gradients = 2 * conv1 + conv2
    weight_bytes = 5 * 4 + 3 * 2
    parts = {
        "libraries of three processes, measured": harness.peak_memory("-c", THREE_PROCESSES),
        "64 games, 1.4 MiB each as measured": 64 * 1.4,
        "observations of the rollout, uint8": (num_steps + 1) * num_envs * pixels / MIB,
        "features of the rollout, float32": num_steps * num_envs * 512 * 4 / MIB,
        "a minibatch's pixels, uint8 and bfloat16": rows * pixels * 3 / MIB,
        "its activations, bfloat16": rows * num_activations * 2 / MIB,
        "gradients of the first two layers, before and after ReLU, bfloat16": (
            rows * num_gradients * 2 / MIB
        ),
        "weights: float32 x 5 (own, published, gradients, Adam's two), bfloat16 x 3": (
            weights * weight_bytes / MIB
        ),
    }
    explained = sum(parts.values())
    return {
        "command": ["python", "main.py", f"--total_steps={steps}", *flags.split()],
        "measured_mib": measured,
        "explained_mib": explained,
        "ratio": explained / measured,
        "parts_mib": parts,
    }


def show(name: str, result: harness.Result) -> str:
    """Write the section of one file in the results."""
    if name == "memory":
        parts = [f"- {part}: {size:,.0f} MiB" for part, size in result["parts_mib"].items()]
        measured, explained = result["measured_mib"], result["explained_mib"]
        shown = f"Measured {measured:,.0f} MiB, explained {explained:,.0f} MiB:\n\n"
        shown += "\n".join(parts)
    else:
        rows = []
        for who, speed in result["medians"].items():
            speeds = harness.each(result["speeds"][who], ",.0f")
            ratio = speed / result["medians"]["gymnasium"]
            rows.append(f"{who} | {speed:,.0f} | {speeds} | {ratio:.2f}")
        shown = harness.table(" | steps/s, median | each | ratio to gymnasium", rows)
    return f"## {name}\n\n{harness.machine(result)}.\n\n{shown}"


def main() -> None:
    parser = harness.make_parser(__doc__, repetitions=3)
    parser.add_argument("parts", nargs="*", default=["step", "memory"], metavar="step|memory")
    given = parser.parse_args()
    measures: dict[str, Callable[[], harness.Result]] = {
        "step": partial(measure_stepping, given.repetitions),
        "memory": measure_memory,
    }
    for part in given.parts:
        result = harness.describe("ale-py", "opencv-python")
        result.update(measures[part]())
        harness.write_json(f"pixels/{part}.json", result)
    sections = [show(*found) for found in harness.read_all("pixels").items()]
    harness.write_page("pixels/README.md", __doc__, *sections)


if __name__ == "__main__":
    main()
