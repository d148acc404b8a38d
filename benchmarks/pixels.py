"""Learning from pixels: python -m benchmarks.pixels [train|step|memory ...] [--repetitions=3]

train: Pong, 8 environments x 128 steps, 4 epochs x 4 minibatches, Nature CNN, in turn and each run in fresh processes:
ours by main.py with --precision=auto and with float32, and Stable-Baselines3's PPO with the same settings as its
documentation has them for Atari (make_atari_env, VecFrameStack, CnnPolicy), in a torch thread per core. Measured are
environment steps per second of the training loop, collecting and learning, from the end of the first iteration to the
end of the last.

step: Pong stepped by one process with the same random actions, ours and gymnasium's AtariPreprocessing with
FrameStackObservation in turn, each observation copied to an array as a worker does.

memory: main.py on Pong, 64 environments x 128 steps, 4 minibatches of 2,048: the largest sum over all its processes of
resident memory, pages that several share counted once, beside what arithmetic says that it should be.

The machine should have nothing else to do. Writes results/pixels/: a file for each, and README.md, which tells them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.throughput import BATCH_SIZE, NUM_ENVS, OURS, ROOT, SB3, about_machine, our_command, run_ours

RESULTS = ROOT / "results" / "pixels"
GAME = "PongNoFrameskip-v4"
STEPS = 12 * BATCH_SIZE
PIXELS = {**OURS, "model": "cnn", "hidden_size": 512, "share_trunk": True, "clip_rewards": True}
MIB = 2**20
# The trainer and two workers as they are before they do anything.
WORKER = "import sys, time, torch, ale_py, cv2, gymnasium; torch.ones(9, 9).mm(torch.ones(9, 9)); time.sleep(5)"
THREE_PROCESSES = f"""import subprocess, sys
workers = [subprocess.Popen([sys.executable, "-c", {WORKER!r}]) for _ in range(2)]
import rich.live, safetensors.torch
{WORKER}"""


def run_sb3(seed: int) -> list[float]:
    """The seconds at which iterations of Stable-Baselines3 ended, in this process."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    class TimedPPO(PPO):
        def train(self) -> None:
            super().train()
            ends.append(time.perf_counter())

    import ale_py  # noqa: F401 (it registers the games)

    torch.set_num_threads(about_machine()["cores"])
    ends: list[float] = []
    envs = VecFrameStack(make_atari_env(GAME, NUM_ENVS, seed), 4)
    TimedPPO(env=envs, seed=seed, **{**SB3, "policy": "CnnPolicy"}).learn(STEPS)
    return ends


def measure_training(repetitions: int) -> dict[str, Any]:
    trainers = {
        "ours": lambda fresh, seed: fresh.submit(run_ours, GAME, STEPS, seed, PIXELS).result()[0],
        "ours_float32": lambda fresh, seed: fresh.submit(
            run_ours, GAME, STEPS, seed, {**PIXELS, "precision": "float32"}
        ).result()[0],
        "sb3": lambda fresh, seed: fresh.submit(run_sb3, seed).result(),
    }
    speeds: dict[str, list[float]] = {trainer: [] for trainer in trainers}
    for seed in range(1, repetitions + 1):
        for trainer, run in trainers.items():
            with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                ends = run(fresh, seed)
            assert len(ends) * BATCH_SIZE == STEPS
            speeds[trainer].append((STEPS - BATCH_SIZE) / (ends[-1] - ends[0]))
            print(f"{seed} of {repetitions}, {trainer}: {speeds[trainer][-1]:,.0f} steps/s", flush=True)
    medians = {trainer: median(values) for trainer, values in speeds.items()}
    ratios = {trainer: medians[trainer] / medians["sb3"] for trainer in ("ours", "ours_float32")}
    commands = {"ours": our_command(GAME, STEPS, "SEED", PIXELS), "sb3": {**SB3, "policy": "CnnPolicy"}}
    return {"steps": STEPS, "medians": medians, "ratios": ratios, "speeds": speeds, "commands": commands}


def seconds_stepping(ours: bool, num_steps: int) -> float:
    """Seconds that a process of its own takes for so many steps."""
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    from envs.make import Preprocessing, make_env

    own = make_env(GAME, Preprocessing(frame_skip=4))
    theirs = FrameStackObservation(AtariPreprocessing(gymnasium.make(GAME, disable_env_checker=True)), 4)
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


def resident(root: int) -> float:
    """MiB of memory of a process and all that it has started, a page that several share counted once."""
    processes, total = [root], 0
    for process in processes:
        folder = Path(f"/proc/{process}")
        try:
            processes += [int(child) for child in (folder / f"task/{process}/children").read_text().split()]
            total += int((folder / "smaps_rollup").read_text().split("Pss:")[1].split()[0])
        except (OSError, IndexError):
            pass  # it has just ended
    return total / 1024


def peak_memory(*command: str) -> float:
    """MiB at the most while a command runs."""
    with subprocess.Popen([sys.executable, *command], cwd=ROOT) as process:
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(0.1)
    assert process.returncode == 0
    return peak


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
        "gradients of the first two layers, before and after ReLU, bfloat16": rows * (2 * conv1 + conv2) * 2 / MIB,
        "weights: float32 x 5 (own, published, gradients, Adam's two), bfloat16 x 3": weights * (5 * 4 + 3 * 2) / MIB,
    }
    explained = sum(parts.values())
    about = {"command": ["python", *run[:-1]], "measured_mib": measured, "explained_mib": explained}
    return {**about, "ratio": explained / measured, "parts_mib": parts}


def tell() -> str:
    """Markdown: what the files in the results say."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    lines = [
        "# Learning from pixels",
        "",
        "Written by `python -m benchmarks.pixels`.",
        "",
        *__doc__.strip().split("\n")[2:],
    ]
    for name, r in found.items():
        machine = f"{r['cpu']}, {r['cores']} cores, load before {r['load_before']}, commit {r['commit']}"
        versions = ", ".join(f"{package} {version}" for package, version in r["versions"].items())
        lines += ["", f"## {name}", "", f"{machine}; {versions}.", ""]
        if name == "memory":
            lines += [f"Measured {r['measured_mib']:,.0f} MiB, explained {r['explained_mib']:,.0f} MiB:", ""]
            lines += [f"- {part}: {size:,.0f} MiB" for part, size in r["parts_mib"].items()]
            continue
        last = "sb3" if name == "train" else "gymnasium"
        lines += [f"| | steps/s, median | each | ratio to {last} |", "| --- | --- | --- | --- |"]
        for who, speed in r["medians"].items():
            each = ", ".join(f"{x:,.0f}" for x in r["speeds"][who])
            lines.append(f"| {who} | {speed:,.0f} | {each} | {speed / r['medians'][last]:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["train", "step", "memory"], metavar="train|step|memory")
    parser.add_argument("--repetitions", type=int, default=3)
    given = parser.parse_args()
    measures = {
        "train": lambda: measure_training(given.repetitions),
        "step": lambda: measure_stepping(given.repetitions),
        "memory": measure_memory,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    for part in given.parts:
        about = about_machine("torch", "gymnasium", "ale-py", "opencv-python", "stable-baselines3")
        (RESULTS / f"{part}.json").write_text(json.dumps({**about, **measures[part]()}, indent=2) + "\n")
        (RESULTS / "README.md").write_text(tell())
    print(tell())


if __name__ == "__main__":
    main()
