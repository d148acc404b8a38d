"""Digests of short runs, to show that a change of the code leaves every bit of its results as it was.

python -m benchmarks.digests --write             record results/digests/digests.json
python -m benchmarks.digests                     run again and compare; exit code 1 where something differs
python -m benchmarks.digests --source=FOLDER     run the trainer of another checkout (of an earlier commit)

A digest covers the final checkpoint's tensors, metrics.csv without its columns of times, the noted episodes and the
final evaluation. Digests are of one machine: rounding differs between processors. --keep=FOLDER keeps the runs, whose
checkpoints a later commit must load.
"""

import argparse
import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from safetensors import safe_open

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "results" / "digests" / "digests.json"
TIMES = {
    "seconds",
    "steps_per_second",
    "seconds_collecting",
    "seconds_learning",
    "seconds_exchanging",
}

QUIET = ["--logger=none", "--report=False", "--eval_episodes=3", "--seed=5", "--checkpoint_every=3"]
SMALL = ["--preset=none", "--num_envs=4", "--num_steps=64", "--total_steps=2048"]
PIXELS = ["--preset=none", "--num_envs=4", "--num_steps=16", "--total_steps=256"]
CARTPOLE = ["--env_name=CartPole-v1", *SMALL]
PENDULUM = ["--env_name=Pendulum-v1", *SMALL]
PONG = ["--env_name=PongNoFrameskip-v4", *PIXELS, "--end_on_life_loss=True", "--clip_rewards=True"]
TWO, NONE = "--num_workers=2", "--num_workers=0"

RUNS: dict[str, list[str]] = {
    "mlp-discrete-two-workers": [*CARTPOLE, TWO],
    "mlp-discrete-no-workers": [*CARTPOLE, NONE],
    "mlp-discrete-preset": ["--env_name=CartPole-v1", "--total_steps=4096", TWO],
    "mlp-lunarlander": ["--env_name=LunarLander-v2", *SMALL, TWO, "--eval_every=2"],
    "mlp-box": ["--env_name=LunarLanderContinuous-v3", *SMALL, TWO],
    "mlp-box-no-workers": [*PENDULUM, NONE],
    "mlp-relu-shared": [*CARTPOLE, TWO, "--activation=relu", "--share_trunk=True"],
    "mlp-gelu-in-torch": [*CARTPOLE, TWO, "--activation=gelu", "--hidden_size=32", "--num_layers=3"],
    "mlp-large-minibatches": [*CARTPOLE, NONE, "--num_steps=512", "--total_steps=6144", "--num_minibatches=2"],
    "schedules": [*CARTPOLE, TWO, "--learning_rate=linear:1e-3", "--clip_coef=linear:0.2", "--entropy_coef=linear:0.01"],
    "adaptive-kl": [*CARTPOLE, TWO, "--learning_rate=adaptive:1e-3", "--target_kl=0.01", "--batch_size=50"],
    "rollout-advantages": [*CARTPOLE, TWO, "--normalize_advantages=rollout", "--clip_value_coef=none"],
    "other-optimizer": [*CARTPOLE, TWO, "--optimizer=torch.optim:SGD", "--normalize_rewards=False"],
    "multidiscrete-masks": ["--env_name=digest_environments:MaskedChoices", *SMALL, TWO],
    "dict-with-image": ["--env_name=digest_environments:Camera", *PIXELS, TWO, "--screen_size=40"],
    "gsde": [*PENDULUM, TWO, "--use_sde", "--sde_sample_freq=4"],
    "squashed": [*PENDULUM, TWO, "--squash_actions"],
    "lstm": ["--env_name=examples.own_environment:HiddenVelocity", *SMALL, "--model=lstm", TWO, "--hidden_size=32"],
    "cnn": [*PONG, "--model=cnn", TWO],
    "cnn-float32-single-frame": [*PONG, "--model=cnn_small", TWO, "--precision=float32", "--frame_stack=1"],
    "cnn-lstm": [*PONG, "--model=lstm", TWO, "--precision=float32", "--hidden_size=32"],
    "impala": [*PONG, "--model=impala", TWO, "--screen_size=42"],
    "overlap": [*CARTPOLE, TWO, "--overlap=True"],
    "learner-acts": [*CARTPOLE, TWO, "--inference=learner"],
    "learner-acts-on-images": [*PONG, "--model=cnn", TWO, "--inference=learner"],
    "own-model": [*CARTPOLE, TWO, "--model=examples.own_model:NormalizedActorCritic"],
    "two-ranks": [*CARTPOLE, TWO],
    "two-ranks-lstm": ["--env_name=examples.own_environment:HiddenVelocity", *SMALL, "--model=lstm", NONE],
    "killed-and-resumed": [*CARTPOLE, TWO, "--total_steps=25600"],
}  # fmt: skip


def run(name: str, source: Path, folder: Path) -> None:
    """Train once, as the name says; a run that is killed is resumed to its end."""
    program = [sys.executable, "main.py"]
    if name.startswith("two-ranks"):
        ranks = ["--standalone", "--nproc_per_node=2", "main.py"]
        program = [sys.executable, "-m", "torch.distributed.run", *ranks]
    threads = dict.fromkeys(("OMP_NUM_THREADS",), "2")
    path = os.pathsep.join([str(ROOT / "benchmarks"), str(source)])
    environment = {**os.environ, **threads, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    command = [*program, *RUNS[name], *QUIET, f"--run_dir={folder}"]
    options: dict[str, Any] = {
        "cwd": source,
        "env": environment,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    if name == "killed-and-resumed":
        with subprocess.Popen(command, **options) as process:
            while process.poll() is None and num_rows(folder) < 40:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        command = [*program, f"--resume={folder}"]
    done = subprocess.run(command, **options)
    if done.returncode:
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr}")


def num_rows(folder: Path) -> int:
    path = folder / "metrics.csv"
    return path.read_text().count("\n") if path.exists() else 0


def digest(folder: Path) -> dict[str, str]:
    """The SHA-256 of each thing that a run leaves, in hexadecimal."""
    tensors = hashlib.sha256()
    with safe_open(folder / "checkpoints" / "last.safetensors", "np") as file:
        for name in sorted(file.keys()):
            table = file.get_tensor(name)
            tensors.update(f"{name} {table.dtype} {table.shape}".encode() + table.tobytes())
    with (folder / "metrics.csv").open(newline="") as file:
        rows = [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(file)]
    evaluation = json.loads((folder / "summary.json").read_text())["evaluation"]
    episodes = (folder / "episodes.jsonl").read_text()
    texts = {
        "metrics": json.dumps(rows),
        "evaluation": json.dumps(evaluation),
        "episodes": episodes,
    }
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return {"tensors": tensors.hexdigest(), **digests}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--source", type=Path, default=ROOT)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", help="names of runs, separated by commas")
    parser.add_argument("--recorded", type=Path, default=RECORDED)
    given = parser.parse_args()
    names = given.only.split(",") if given.only else list(RUNS)
    recorded = {} if given.write else json.loads(given.recorded.read_text())["digests"]
    found = {}
    differ = []
    parent = given.keep or Path(tempfile.mkdtemp())
    for name in names:
        folder = parent / name
        run(name, given.source.absolute(), folder)
        found[name] = digest(folder)
        wrong = [
            kind
            for kind in found[name]
            if not given.write and found[name][kind] != recorded[name][kind]
        ]
        differ += [name] * bool(wrong)
        print(
            f"{name}: {'differs in ' + ', '.join(wrong) if wrong else 'recorded' if given.write else 'same'}",
            flush=True,
        )
    if given.keep is None:
        shutil.rmtree(parent)
    if given.write:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=given.source,
            capture_output=True,
            text=True,
        )
        given.recorded.parent.mkdir(parents=True, exist_ok=True)
        given.recorded.write_text(
            json.dumps({"commit": commit.stdout.strip(), "digests": found}, indent=1) + "\n"
        )
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
