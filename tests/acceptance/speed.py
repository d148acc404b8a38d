"""Speed: steps per second, seconds of short commands and peak memory, divided by the base's.

ACCEPTANCE_PAIRS: how many pairs of runs are measured, in alternating order (default: 9)."""

import os
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

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
    "lunarlander": f"{LANDER} --total_steps=262144",
    "cartpole": f"{CARTPOLE} --total_steps=524288",
    "halfcheetah": f"{CHEETAH} --total_steps=98304",
    "pong": f"{PONG} --total_steps=16384",
    "envpool-lunarlander": f"{POOL}/LunarLander-v3 --total_steps=655360",
    "envpool-cartpole": f"{POOL}/CartPole-v1 --total_steps=1048576",
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
    """Print all numbers; return them if the median is wrong."""
    sides = {"tree": tree, "base": base}
    measured: dict[str, list[float]] = {side: [] for side in sides}
    for pair in range(PAIRS):
        for side in sorted(sides, reverse=pair % 2 == 0):
            measured[side].append(measure(name, sides[side], folder / f"{side}-{pair}"))
    ratios = [ours / theirs for ours, theirs in zip(*measured.values(), strict=True)]
    medians = " and ".join(f"{median(values):,.6g}" for values in measured.values())
    says = f"{median(ratios):.3f} ({medians}), pairs: {' '.join(f'{x:.3f}' for x in ratios)}"
    print(f"speed/{name}: {says}", flush=True)
    is_wrong = median(ratios) < 0.99 if name in SPEEDS else median(ratios) > 1.01
    return says if is_wrong else ""


def measure(name: str, tree: Tree, folder: Path) -> float:
    """Return steps per second, the seconds of the fastest of five starts, or MiB."""
    if name in STARTS:
        return min(seconds_of_start(tree, CASES[name], folder / str(i)) for i in range(5))
    process = tree.start(CASES[name], folder)
    if name in MEMORY:
        return peak_memory(process)
    end(process)
    first, *_, last = rows(folder / "run")  # workers get ready in the first iteration
    steps, seconds = (float(last[x]) - float(first[x]) for x in ("step", "seconds"))
    return steps / seconds


def seconds_of_start(tree: Tree, command: str, folder: Path) -> float:
    """Measure the seconds to the first row of a run, or to the end of another command."""
    process = tree.start(command, folder)
    if "--run_dir" in command:
        process.wait_for_rows(folder / "run", 1)
    else:
        process.process.wait()  # with a limit of time it would look up to 50 ms too late
    seconds = time.monotonic() - process.begin
    end(process)
    return seconds


def peak_memory(process: Process) -> float:
    """Return the largest sum of all processes in MiB; pages that several share count once."""
    peak = 0
    while process.process.poll() is None:
        total = 0
        for pid in marked(process.mark):
            with suppress(OSError, IndexError):  # it has just ended
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(text.split("Pss:")[1].split()[0])
        peak = max(peak, total)
        time.sleep(0.05)
    end(process)
    return peak / 1024


def end(process: Process) -> None:
    done = process.wait(600)
    assert done.code == 0, f"exit code {done.code}: {done.err}"
