"""Training speed beside Stable-Baselines3: python -m benchmarks.throughput [--steps=102400] [--repetitions=3] [--env=E]

Trains on the same work in turn, each run in fresh processes: ours, by main.py as a user would call it; SB3, its PPO on
its DummyVecEnv in one torch thread, made from the environment's id as its documentation has it; and SB3 plain, the
same on environments that cannot render (given an id, SB3 asks for render_mode="rgb_array", which slows LunarLander's
step down; ours never does). Measured are environment steps per second of the training loop, collecting and learning,
from the end of the first iteration, in which our workers get ready, to the end of the last. What still differs: ours
steps environments in a process per core, SB3 in its only process, which is the default of each; and SB3 clips values
without taking the larger of both errors. The machine should have nothing else to do.

Writes results/throughput/: for each environment a file of all that was measured, and README.md, a table of them.
"""

import argparse
import csv
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any

from envs.make import canonical_id, make_env

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "throughput"
NUM_ENVS, NUM_STEPS, NUM_MINIBATCHES = 8, 128, 4
BATCH_SIZE = NUM_ENVS * NUM_STEPS

SAME = {"learning_rate": 2.5e-4, "gamma": 0.99, "gae_lambda": 0.95, "max_grad_norm": 0.5, "device": "cpu"}
OURS = {
    **{"preset": "none", "model": "mlp", "hidden_size": 64, "share_trunk": False},
    **{"num_envs": NUM_ENVS, "num_steps": NUM_STEPS, "num_epochs": 4, "num_minibatches": NUM_MINIBATCHES},
    **{"clip_coef": 0.1, "clip_value_coef": 0.1, "value_coef": 0.5, "entropy_coef": 0.01},
    **{"normalize_advantages": "minibatch", "normalize_observations": False, "normalize_rewards": False},
    **{"eval_episodes": 0, "logger": "none", "report": False},
    **SAME,
}
# Of MlpPolicy the defaults are as ours: 2 x 64 tanh each for policy and value, orthogonal, Adam with epsilon 1e-5.
SB3 = {
    **{"policy": "MlpPolicy", "n_steps": NUM_STEPS, "n_epochs": 4, "batch_size": BATCH_SIZE // NUM_MINIBATCHES},
    **{"clip_range": 0.1, "clip_range_vf": 0.1, "ent_coef": 0.01, "normalize_advantage": True},
    "vf_coef": 0.25,  # half of ours, whose loss has a factor 1/2
    **SAME,
}


def our_command(env_name: str, steps: int, seed: int | str, flags: dict[str, Any] = OURS) -> list[str]:
    flags = {"env_name": env_name, "total_steps": steps, "seed": seed, **flags}
    return ["main.py", *(f"--{name}={value}" for name, value in flags.items())]


def run_ours(env_name: str, steps: int, seed: int, flags: dict[str, Any] = OURS) -> tuple[list[float], float | None]:
    """The seconds at which iterations ended, by a clock of their own, and the mean of the last 100 returns."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *our_command(env_name, steps, seed, flags), f"--run_dir={folder}"]
        subprocess.run(command, check=True, cwd=ROOT)
        rows = list(csv.DictReader(Path(folder, "metrics.csv").read_text().splitlines()))
    mean_return = rows[-1]["episode_return_mean"]
    return [float(row["seconds"]) for row in rows], float(mean_return) if mean_return else None


def run_sb3(env_name: str, steps: int, seed: int, plain: bool = False) -> tuple[list[float], float | None]:
    """The same of Stable-Baselines3, in this process. plain: on environments that cannot render."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv

    class TimedPPO(PPO):
        def train(self) -> None:
            super().train()
            ends.append(time.perf_counter())

    torch.set_num_threads(1)
    ends: list[float] = []
    envs = make_vec_env((lambda: make_env(env_name)) if plain else env_name, NUM_ENVS, vec_env_cls=DummyVecEnv)
    model = TimedPPO(env=envs, seed=seed, **SB3).learn(steps)
    returns = [episode["r"] for episode in model.ep_info_buffer]
    return ends, fmean(returns) if returns else None


def measure(env_name: str, steps: int, repetitions: int) -> dict[str, Any]:
    """All repetitions, each of which is a run of every trainer, with the same seed."""
    runs: dict[str, list[dict[str, Any]]] = {trainer: [] for trainer in TRAINERS}
    for seed in range(1, repetitions + 1):
        for trainer, run in TRAINERS.items():
            with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                ends, mean_return = fresh.submit(run, env_name, steps, seed).result()
            assert len(ends) * BATCH_SIZE == steps
            speed = (steps - BATCH_SIZE) / (ends[-1] - ends[0])
            runs[trainer].append({"seed": seed, "steps_per_second": speed, "mean_return": mean_return})
            print(f"{seed} of {repetitions}, {trainer:9}: {speed:,.0f} steps/s", flush=True)
    speeds = {trainer: [run["steps_per_second"] for run in runs[trainer]] for trainer in runs}
    medians = {trainer: median(speeds[trainer]) for trainer in runs}
    ratios = {
        peer: {"of_medians": medians["ours"] / medians[peer], "of_pairs": _ratios(speeds["ours"], speeds[peer])}
        for peer in ("sb3", "sb3_plain")
    }
    return {"medians": medians, "ratios": ratios, "runs": runs}


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


TRAINERS = {"ours": run_ours, "sb3": run_sb3, "sb3_plain": partial(run_sb3, plain=True)}


def about_machine(*packages: str) -> dict[str, Any]:
    """What a measurement is made on: hardware, how busy it is already, versions, and the trainer's commit."""
    cpuinfo, git = Path("/proc/cpuinfo"), ["git", "describe", "--always", "--dirty"]
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text() if cpuinfo.exists() else "")
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in packages}},
        "commit": subprocess.run(git, cwd=ROOT, capture_output=True, text=True).stdout.strip() or None,
    }


def table() -> str:
    """Markdown: a row for each environment that is in the results."""
    introduction = __doc__.split("\n\n")[1]
    rows = [
        ("environment", "ours", "SB3", "ratio", "SB3 plain", "ratio", "each pair: SB3; SB3 plain", "machine"),
        ["---"] * 8,
    ]
    for path in sorted(RESULTS.glob("*.json")):
        r = json.loads(path.read_text())
        ours, sb3, plain = (f"{r['medians'][trainer]:,.0f}" for trainer in TRAINERS)
        ratio, plain_ratio = (f"{r['ratios'][peer]['of_medians']:.2f}" for peer in ("sb3", "sb3_plain"))
        pairs = ("; ").join(", ".join(f"{x:.2f}" for x in r["ratios"][peer]["of_pairs"]) for peer in r["ratios"])
        versions = ", ".join(f"{name} {version}" for name, version in r["versions"].items())
        machine = f"{r['cpu']}, {r['cores']} cores, {versions}"
        rows.append((r["env_name"], ours, sb3, ratio, plain, plain_ratio, pairs, machine))
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    title = (
        "# Training speed beside Stable-Baselines3\n\nWritten by `python -m benchmarks.throughput`; medians of steps/s."
    )
    return f"{title}\n{introduction}\n\n{lines}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=102_400, help=f"of each run; whole iterations of {BATCH_SIZE}")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--env", type=canonical_id, default="LunarLander-v3")
    given = parser.parse_args()
    steps = given.steps - given.steps % BATCH_SIZE
    if steps < 2 * BATCH_SIZE or given.repetitions < 1:
        parser.error(f"give --steps of at least {2 * BATCH_SIZE}, and at least one of --repetitions")
    about = about_machine("torch", "gymnasium", "numpy", "stable-baselines3")
    print(*(f"{name}: {value}" for name, value in about.items()), sep="\n")
    command = f"python -m benchmarks.throughput --steps={steps} --repetitions={given.repetitions} --env={given.env}"
    about |= {"command": command, "ours": shlex.join(["python", *our_command(given.env, steps, "SEED")]), "sb3": SB3}
    result = {"env_name": given.env, "steps": steps, **about, **measure(given.env, steps, given.repetitions)}
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', given.env)}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    (RESULTS / "README.md").write_text(table())
    print(f"\n{table()}")


if __name__ == "__main__":
    main()
