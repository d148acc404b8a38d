"""Stepping and memory on pixels: python -m benchmarks.pixels [step|memory ...] [--repetitions=3]

step: Pong stepped by one process with the same random actions, ours and gymnasium's AtariPreprocessing with
FrameStackObservation in turn, each observation copied to an array as a worker does.

memory: main.py on Pong, 64 environments x 128 steps, 4 minibatches of 2,048: the largest sum over all its processes of
resident memory, pages that several share counted once, beside what arithmetic says that it should be.

The machine should have nothing else to do. Writes results/pixels/: a file for each, and README.md, which tells them.
"""

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import ROOT, about_machine, peak_memory
from benchmarks.trainers import GAME, PIXELS, our_command

RESULTS = ROOT / "results" / "pixels"
MIB = 2**20
# The trainer and two workers as they are before they do anything.
WORKER = "import sys, time, torch, ale_py, cv2, gymnasium; torch.ones(9, 9).mm(torch.ones(9, 9)); time.sleep(5)"
THREE_PROCESSES = f"""import subprocess, sys
workers = [subprocess.Popen([sys.executable, "-c", {WORKER!r}]) for _ in range(2)]
import rich.live, safetensors.torch
{WORKER}"""


def seconds_stepping(ours: bool, num_steps: int) -> float:
    """Seconds that a process of its own takes for so many steps."""
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    from ppo.envs.make import Preprocessing, make_env

    own = make_env(GAME, Preprocessing(frame_skip=4))
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
    return time.perf_counter() - start


def measure_stepping(repetitions: int, num_steps: int = 5000) -> dict[str, Any]:
    speeds: dict[str, list[float]] = {"ours": [], "gymnasium": []}
    for _ in range(repetitions):
        for chain in speeds:
            with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                seconds = fresh.submit(seconds_stepping, chain == "ours", num_steps).result()
            speeds[chain].append(num_steps / seconds)
    medians = {chain: median(values) for chain, values in speeds.items()}
    return {"medians": medians, "ratio": medians["ours"] / medians["gymnasium"], "speeds": speeds}


def measure_memory() -> dict[str, Any]:
    num_envs, num_steps, num_minibatches, num_workers = 64, 128, 4, 2
    flags = {**PIXELS, "num_envs": num_envs, "num_workers": num_workers}
    with tempfile.TemporaryDirectory() as folder:
        run = [*our_command(GAME, 3 * num_envs * num_steps, 1, flags), f"--run_dir={folder}/run"]
        measured = peak_memory(*run)
    libraries = peak_memory("-c", THREE_PROCESSES)
    pixels, weights = 84 * 84 * 4, 1_687_719  # of one observation; of the Nature CNN with 6 actions
    rows = num_envs * num_steps // num_minibatches
    conv1, conv2, conv3, hidden = 20 * 20 * 32, 9 * 9 * 64, 7 * 7 * 64, 512
    parts = {
        "libraries of three processes, measured": libraries,
        "64 games, 1.4 MiB each as measured": 64 * 1.4,
        "observations of the rollout, uint8": (num_steps + 1) * num_envs * pixels / MIB,
        "features of the rollout, float32": num_steps * num_envs * 512 * 4 / MIB,
        "a minibatch's pixels, uint8 and bfloat16": rows * pixels * 3 / MIB,
        "its activations, bfloat16": rows * (conv1 + conv2 + conv3 + hidden) * 2 / MIB,
        "gradients of the first two layers, before and after ReLU, bfloat16": rows
        * (2 * conv1 + conv2)
        * 2
        / MIB,
        "weights: float32 x 5 (own, published, gradients, Adam's two), bfloat16 x 3": weights
        * (5 * 4 + 3 * 2)
        / MIB,
    }
    explained = sum(parts.values())
    about = {"command": ["python", *run[:-1]], "measured_mib": measured, "explained_mib": explained}
    return {**about, "ratio": explained / measured, "parts_mib": parts}


def tell() -> str:
    """Markdown: what the files in the results say."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    lines = [
        "# Stepping and memory on pixels",
        "",
        "Written by `python -m benchmarks.pixels`.",
        "",
        *__doc__.strip().split("\n")[2:],
    ]
    for name, r in found.items():
        machine = (
            f"{r['cpu']}, {r['cores']} cores, load before {r['load_before']}, commit {r['commit']}"
        )
        versions = ", ".join(f"{package} {version}" for package, version in r["versions"].items())
        lines += ["", f"## {name}", "", f"{machine}; {versions}.", ""]
        if name == "memory":
            lines += [
                f"Measured {r['measured_mib']:,.0f} MiB, explained {r['explained_mib']:,.0f} MiB:",
                "",
            ]
            lines += [f"- {part}: {size:,.0f} MiB" for part, size in r["parts_mib"].items()]
            continue
        lines += ["| | steps/s, median | each | ratio to gymnasium |", "| --- | --- | --- | --- |"]
        for who, speed in r["medians"].items():
            each = ", ".join(f"{x:,.0f}" for x in r["speeds"][who])
            lines.append(
                f"| {who} | {speed:,.0f} | {each} | {speed / r['medians']['gymnasium']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["step", "memory"], metavar="step|memory")
    parser.add_argument("--repetitions", type=int, default=3)
    given = parser.parse_args()
    measures = {"step": lambda: measure_stepping(given.repetitions), "memory": measure_memory}
    RESULTS.mkdir(parents=True, exist_ok=True)
    for part in given.parts:
        about = about_machine("torch", "gymnasium", "ale-py", "opencv-python")
        (RESULTS / f"{part}.json").write_text(
            json.dumps({**about, **measures[part]()}, indent=2) + "\n"
        )
        (RESULTS / "README.md").write_text(tell())
    print(tell())


if __name__ == "__main__":
    main()
