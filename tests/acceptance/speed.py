"""Speed: steps per second, seconds of short commands and peak memory, divided by the base's.

The runs of a pair take turns of half a second, so that both meet the same noise. ACCEPTANCE_PAIRS
(9) pairs; of starts ten times as many, by lower quartiles; as many again if wrong, up to twice."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from tests.acceptance.tree import Process, Tree, marked, rows

NEEDS_BASE = True
PAIRS = int(os.environ.get("ACCEPTANCE_PAIRS", "9"))
ALWAYS = "--run_dir=run --preset=none --eval_episodes=0 --logger=none --num_steps=128"
LANDER = f"--env_name=LunarLander-v3 {ALWAYS}"
CARTPOLE = f"--env_name=CartPole-v1 {ALWAYS}"
PONG = f"--env_name=PongNoFrameskip-v4 {ALWAYS} --model=cnn --clip_rewards=True"
CHEETAH = f"--env_name=HalfCheetah-v5 {ALWAYS} --num_envs=16 --hidden_size=256"
POOL = f"{ALWAYS} --num_envs=64 --env_name=EnvPool"

SPEEDS = {
    "lunarlander": f"{LANDER} --total_steps=131072",
    "cartpole": f"{CARTPOLE} --total_steps=262144",
    "halfcheetah": f"{CHEETAH} --total_steps=49152",
    "pong": f"{PONG} --total_steps=4096",
    "envpool-lunarlander": f"{POOL}/LunarLander-v3 --total_steps=327680",
    "envpool-cartpole": f"{POOL}/CartPole-v1 --total_steps=524288",
}
STARTS = {
    "start of --version": "--version",
    "start of --help": "--help",
    "start to the first row": f"{CARTPOLE} --total_steps=1024",
}
MEMORY = {
    "memory lunarlander": f"{LANDER} --total_steps=32768",
    "memory pong": f"{PONG} --total_steps=2048",
}
CASES = {**SPEEDS, **STARTS, **MEMORY}


def check(name: str, tree: Tree, base: Tree, folder: Path) -> str:
    """Print all numbers; return them if they are wrong."""
    measure = seconds_of_a_start if name in STARTS else peaks if name in MEMORY else speeds
    count = PAIRS * 10 if name in STARTS else PAIRS
    found: dict[str, list[float]] = {"tree": [], "base": []}
    for number in range(3 * count):
        sides = {"tree": tree, "base": base} if number % 2 else {"base": base, "tree": tree}
        for side, value in measure(name, sides, folder / str(number)).items():
            found[side].append(value)
        if (number + 1) % count:
            continue
        ratios = np.divide(found["tree"], found["base"])
        ours, theirs = (np.quantile(x, 0.25 if name in STARTS else 0.5) for x in found.values())
        ratio = ours / theirs if name in STARTS else np.median(ratios)
        says = f"{ratio:.3f} ({ours:,.6g} and {theirs:,.6g}), pairs: {np.round(ratios, 3)}"
        print(f"speed/{name}: {says}", flush=True)
        if ratio >= 0.99 if name in SPEEDS else ratio <= 1.01:
            return ""
    return says


def speeds(name: str, sides: Mapping[str, Tree], folder: Path) -> dict[str, float]:
    """Return steps per second from the first row on, in which workers get ready."""
    runs = {}
    for side, tree in sides.items():
        runs[side] = tree.start(CASES[name], folder / side)
        runs[side].wait_for_rows(folder / side / "run", 1)
        send(runs[side], signal.SIGSTOP)
    seconds = dict.fromkeys(sides, 0.0)
    while running := [x for x in sides if runs[x].process.poll() is None]:
        for side in running:
            begin = time.monotonic()
            send(runs[side], signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                runs[side].process.wait(0.5)
            send(runs[side], signal.SIGSTOP)
            seconds[side] += time.monotonic() - begin
    for process in runs.values():
        end(process)
    steps = {side: [int(x["step"]) for x in rows(folder / side / "run")] for side in sides}
    return {side: (steps[side][-1] - steps[side][0]) / seconds[side] for side in sides}


def send(process: Process, number: int) -> None:
    for pid in marked(process.mark):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def seconds_of_a_start(name: str, sides: Mapping[str, Tree], folder: Path) -> dict[str, float]:
    found = {}
    for side, tree in sides.items():
        process = tree.start(CASES[name], folder / side)
        if "--run_dir" in CASES[name]:
            process.wait_for_rows(folder / side / "run", 1)
        else:
            process.process.wait()
        found[side] = time.monotonic() - process.begin
        end(process)
    return found


def peaks(name: str, sides: Mapping[str, Tree], folder: Path) -> dict[str, float]:
    """Return the peaks of all processes in MiB, with what they share."""
    kib: dict[str, dict[int, int]] = {side: {} for side in sides}
    for side, tree in sides.items():
        process = tree.start(CASES[name], folder / side)
        while process.process.poll() is None:
            for pid in marked(process.mark):
                with suppress(OSError, IndexError):  # it has just ended
                    text = Path(f"/proc/{pid}/status").read_text()
                    kib[side][pid] = int(text.split("VmHWM:")[1].split()[0])
            time.sleep(0.05)
        end(process)
    return {side: sum(kib[side].values()) / 1024 for side in sides}


def end(process: Process) -> None:
    assert (done := process.wait(600)).code == 0, f"exit code {done.code}: {done.err}"
