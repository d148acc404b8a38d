"""Digests of short runs, to show that a change of the code leaves every bit of its results.

python -m benchmarks.digests --write record results/digests/digests.json python -m
benchmarks.digests run again and compare; exit code 1 where something differs python -m
benchmarks.digests --source=FOLDER run the trainer of another checkout (of an earlier commit)

A digest covers the final checkpoint's tensors, metrics.csv without its columns of times, the noted
episodes and the final evaluation. Digests are of one machine: rounding differs between processors.
--keep=FOLDER keeps the runs, whose checkpoints a later commit must load.
"""

import argparse
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

from benchmarks import harness

RECORDED = harness.RESULTS / "digests" / "digests.json"

QUIET = "--logger=none --report=False --eval_episodes=3 --seed=5 --checkpoint_every=3"
SMALL = "--preset=none --num_envs=4 --num_steps=64 --total_steps=2048"
PIXELS = "--preset=none --num_envs=4 --num_steps=16 --total_steps=256"
TWO = "--num_workers=2"
NONE = "--num_workers=0"
CARTPOLE = f"--env_name=CartPole-v1 {SMALL}"
PENDULUM = f"--env_name=Pendulum-v1 {SMALL}"
PONG = f"--env_name=PongNoFrameskip-v4 {PIXELS} {TWO} --end_on_life_loss=True --clip_rewards=True"
HIDDEN = f"--env_name=examples.own_environment:HiddenVelocity {SMALL} --model=lstm"
CURRICULUM = (
    f"--env_name=digest_environments:Slippery --callback=digest_environments:Harder {SMALL} {TWO}"
)
NUM_ROWS_BEFORE_KILL = 39

KILLED = "killed-and-resumed"
RUNS = {
    "mlp-discrete-two-workers": f"{CARTPOLE} {TWO}",
    "mlp-discrete-no-workers": f"{CARTPOLE} {NONE}",
    "mlp-discrete-preset": f"--env_name=CartPole-v1 --total_steps=4096 {TWO}",
    "mlp-lunarlander": f"--env_name=LunarLander-v2 {SMALL} {TWO} --eval_every=2",
    "mlp-box": f"--env_name=LunarLanderContinuous-v3 {SMALL} {TWO}",
    "mlp-box-no-workers": f"{PENDULUM} {NONE}",
    "mlp-relu-shared": f"{CARTPOLE} {TWO} --activation=relu --share_trunk=True",
    "mlp-gelu-in-torch": f"{CARTPOLE} {TWO} --activation=gelu --hidden_size=32 --num_layers=3",
    "mlp-large-minibatches": (
        f"{CARTPOLE} {NONE} --num_steps=512 --total_steps=6144 --num_minibatches=2"
    ),
    "schedules": (
        f"{CARTPOLE} {TWO} --learning_rate=linear:1e-3 --clip_coef=linear:0.2"
        " --entropy_coef=linear:0.01"
    ),
    "adaptive-kl": (
        f"{CARTPOLE} {TWO} --learning_rate=adaptive:1e-3 --target_kl=0.01 --batch_size=50"
    ),
    "rollout-advantages": (
        f"{CARTPOLE} {TWO} --normalize_advantages=rollout --clip_value_coef=none"
    ),
    "other-optimizer": f"{CARTPOLE} {TWO} --optimizer=torch.optim:SGD --normalize_rewards=False",
    "multidiscrete-masks": f"--env_name=digest_environments:MaskedChoices {SMALL} {TWO}",
    "dict-with-image": f"--env_name=digest_environments:Camera {PIXELS} {TWO} --screen_size=40",
    "gsde": f"{PENDULUM} {TWO} --use_sde --sde_sample_freq=4",
    "squashed": f"{PENDULUM} {TWO} --squash_actions",
    "lstm": f"{HIDDEN} {TWO} --hidden_size=32",
    "gru": f"{HIDDEN} {TWO} --hidden_size=32 --model=gru",
    "cnn": f"{PONG} --model=cnn",
    "cnn-float32-single-frame": f"{PONG} --model=cnn_small --precision=float32 --frame_stack=1",
    "cnn-lstm": f"{PONG} --model=lstm --precision=float32 --hidden_size=32",
    "impala": f"{PONG} --model=impala --screen_size=42",
    "overlap": f"{CARTPOLE} {TWO} --overlap=True",
    "learner-acts": f"{CARTPOLE} {TWO} --inference=learner",
    "learner-acts-on-images": f"{PONG} --model=cnn --inference=learner",
    "own-model": f"{CARTPOLE} {TWO} --model=examples.own_model:NormalizedActorCritic",
    "two-ranks": f"{CARTPOLE} {TWO}",
    "two-ranks-lstm": f"{HIDDEN} {NONE}",
    "curriculum": CURRICULUM,
    KILLED: f"{CARTPOLE} {TWO} --total_steps=25600",
    f"{KILLED}-curriculum": f"{CURRICULUM} --total_steps=25600",
}


ADDED = {"faults/episodes_lost"}  # columns that earlier commits lack


def run(name: str, source: Path, folder: Path) -> None:
    """Train once; what is killed is resumed to its end. Raises SystemExit if a run fails."""
    program = list(harness.MAIN)
    if name.startswith("two-ranks"):
        ranks = ["--standalone", "--nproc_per_node=2", "main.py"]
        program = [sys.executable, "-m", "torch.distributed.run", *ranks]
    options: dict[str, Any] = {
        "cwd": source,
        "env": {
            **os.environ,
            "OMP_NUM_THREADS": "2",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(source)]),
            "PYTHONWARNINGS": "ignore",
        },
        "stderr": subprocess.PIPE,
        "text": True,
    }
    command = [*program, *RUNS[name].split(), *QUIET.split(), f"--run_dir={folder}"]
    if name.startswith(KILLED):
        with subprocess.Popen(command, **options) as process:
            while process.poll() is None and harness.num_rows(folder) < NUM_ROWS_BEFORE_KILL:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        trusted = [x for x in command if "digest_environments:" in x]
        command = [*program, f"--resume={folder}", *trusted]
    done = subprocess.run(command, **options)
    if done.returncode:
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr}")


def digest(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 of each thing that a run leaves, in hexadecimal."""
    tensors = hashlib.sha256()
    with safe_open(folder / "checkpoints" / "last.safetensors", "np") as file:
        for name in sorted(file.keys()):
            table = file.get_tensor(name)
            tensors.update(f"{name} {table.dtype} {table.shape}".encode() + table.tobytes())
    run = harness.read_run(folder)
    rows = harness.without_times(run.rows)
    metrics = [{name: x for name, x in row.items() if name not in ADDED} for row in rows]
    texts = {
        "metrics": json.dumps(metrics),
        "evaluation": json.dumps(run.summary["evaluation"]),
        "episodes": (folder / "episodes.jsonl").read_text(),
    }
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return {"tensors": tensors.hexdigest(), **digests}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = harness.make_parser(__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--source", type=Path, default=harness.ROOT)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", help="names of runs, separated by commas")
    parser.add_argument("--recorded", type=Path, default=RECORDED)
    return parser.parse_args()


def main() -> None:
    given = parse()
    names = given.only.split(",") if given.only else list(RUNS)
    recorded = {}
    if not given.write:
        recorded = json.loads(given.recorded.read_text())["digests"]
    parent = given.keep or Path(tempfile.mkdtemp())
    found = {}
    any_differs = False
    for name in names:
        run(name, given.source.absolute(), parent / name)
        found[name] = digest(parent / name)
        if name.startswith(KILLED):  # noted again after the kill
            del found[name]["episodes"]
        outcome = "recorded"
        if not given.write:
            differ = [kind for kind in found[name] if found[name][kind] != recorded[name][kind]]
            any_differs |= bool(differ)
            outcome = f"differs in {', '.join(differ)}" if differ else "same"
        print(f"{name}: {outcome}", flush=True)
    if given.keep is None:
        shutil.rmtree(parent)
    if given.write:
        commit = harness.git("rev-parse", "--short", "HEAD", cwd=given.source)
        given.recorded.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"commit": commit, "digests": found}, indent=1)
        given.recorded.write_text(content + "\n")
    sys.exit(any_differs)


if __name__ == "__main__":
    main()
