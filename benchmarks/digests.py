"""Digests of short runs, which show whether a change of the code left every bit of their results:
python -m benchmarks.digests [--write] [--source=FOLDER] [--only=NAME,NAME] [--keep=FOLDER]

Runs of every kind are trained, some of them killed and resumed, and what each leaves is compared
with results/digests/digests.json; exit code 1 where something differs. --write records it instead;
with --only, others stay as they were recorded, and the commit is that of the last recording.
--source: the trainer of another checkout, of an earlier commit; --keep: keeps the runs, whose
checkpoints a later commit must load.

Digests cover the final checkpoint's tensors, metrics.csv without its columns of times, the final
evaluation, and apart from these what is averaged over recent episodes. Tensors and columns that
have got other names since the first commit that is compared have the old ones in RENAMED. Digests
are of one machine: rounding differs between processors. Runs of a package that is not installed are
left out.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import safe_open

from benchmarks import harness

ENVIRONMENTS = Path(__file__).parent / "environments"  # beside the trainer of any commit
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
NUM_ROWS_BEFORE_KILL = {"cnn": 9}  # by the end of the name of a run
MOST_ROWS_BEFORE_KILL = 39
BATCH = f"--env_name=digest_environments:together {SMALL}"
TEAM = f"--env_name=digest_environments:Relay {SMALL} --num_envs=6"
POOL = f"--env_name=EnvPool/CartPole-v1 --eval_env=CartPole-v1 {SMALL}"
RUN = "FOLDER/mlp-discrete-preset"  # of another run, which is trained before
DEMONSTRATIONS = "FOLDER/demonstrations.npz"  # ten episodes of it
OWN = "digest_environments:"  # of what a resumed run must be told again

KILLED = "killed-and-resumed"
STOPPED = "stopped-and-resumed"  # at one iteration, since it begins new episodes
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
    "learner-acts": f"{CARTPOLE} {TWO} --inference=learner",
    "learner-acts-on-images": f"{PONG} --model=cnn --inference=learner",
    "own-model": f"{CARTPOLE} {TWO} --model=examples.own_model:NormalizedActorCritic",
    "two-ranks": f"{CARTPOLE} {TWO}",
    "two-ranks-lstm": f"{HIDDEN} {NONE}",
    "curriculum": CURRICULUM,
    "batch": f"{BATCH} {TWO}",
    "batch-no-workers": f"{BATCH} {NONE}",
    "batch-envpool": f"{POOL} {TWO}",
    "team": f"{TEAM} {TWO}",
    "team-lstm": f"{TEAM} {NONE} --model=lstm --hidden_size=32",
    "freeze": f"{CARTPOLE} {TWO} --init_from={RUN} --freeze=policy_trunk",
    "freeze-in-torch": f"{CARTPOLE} {NONE} --freeze=value_trunk --activation=gelu",
    "init-from-parts": f"{CARTPOLE} {NONE} --init_from={RUN} --init_parts=policy,normalizer",
    "critic-warmup": f"{CARTPOLE} {TWO} --init_from={RUN} --critic_warmup=3",
    "critic-warmup-lstm": f"{HIDDEN} {NONE} --hidden_size=32 --critic_warmup=2",
    "teacher": f"{CARTPOLE} {TWO} --teacher={RUN}",
    "distillation": f"{CARTPOLE} {NONE} --teacher={RUN} --distill",
    "cloning": f"{CARTPOLE} {TWO} --demonstrations={DEMONSTRATIONS} --clone_epochs=3",
    "cloning-then-warmup": (
        f"{CARTPOLE} {NONE} --demonstrations={DEMONSTRATIONS} --clone_epochs=2 --critic_warmup=2"
    ),
    "stopping": (
        f"{CARTPOLE} {TWO} --best_by=episode_return_mean --stop_when=episode_return_mean>30"
        " --eval_every=2"
    ),
    "patience": f"{PENDULUM} {TWO} --best_by=entropy --patience=3",
    "live-settings": f"{CARTPOLE} {TWO} --callback=digest_environments:Setter",
    "reward-terms": (
        f"--env_name=examples.reward_groups:Reach {SMALL} {TWO} --reward_term=reach"
        " --reward_term=effort --learner=examples.reward_groups:GroupLearner"
        " --model=examples.reward_groups:GroupCritic"
    ),
    "torch-distribution": (
        f"{PENDULUM} {TWO} --model=digest_model:BetaActorCritic --inference=learner"
    ),
    "frame-stack": f"{PENDULUM} {NONE} --frame_stack=3 --action_repeat=2",
    "far-from-zero": f"--env_name=digest_environments:Far {SMALL} {TWO}",
    KILLED: f"{CARTPOLE} {TWO} --total_steps=25600",
    f"{KILLED}-curriculum": f"{CURRICULUM} --total_steps=25600",
    f"{STOPPED}-batch": f"{BATCH} {TWO}",
    f"{STOPPED}-team-lstm": f"{TEAM} {NONE} --model=lstm --hidden_size=32",
    f"{KILLED}-cnn": f"{PONG} --model=cnn_small --total_steps=1024",
}
NEEDED = {"batch-envpool": "envpool"}  # packages of runs

NOT_IN_ALL = {"faults/episodes_lost", "faults/log_dropped"}  # columns that some commits lack
OF_EPISODES = re.compile("env/|episode_.*_mean")  # columns that are averaged over episodes
RENAMED: dict[str, str] = {}  # from today's names of tensors and columns to those of the first


def old_name(name: str) -> str:
    """Return the name that a tensor or a column had at the first commit that is compared."""
    return RENAMED.get(name, name)


def run(name: str, source: Path, parent: Path) -> None:
    """Train once, after the runs that it needs; what is killed is resumed to its end. Does nothing
    if it has been trained already. Raises SystemExit if a run fails."""
    folder = parent / name
    if folder.exists():
        return
    program = list(harness.MAIN)
    if name.startswith("two-ranks"):
        ranks = ["--standalone", "--nproc_per_node=2", "main.py"]
        program = [sys.executable, "-m", "torch.distributed.run", *ranks]
    options: dict[str, Any] = {
        "cwd": source,
        "env": {
            **os.environ,
            "OMP_NUM_THREADS": "2",
            "PYTHONPATH": os.pathsep.join([str(ENVIRONMENTS), str(source)]),
            "PYTHONWARNINGS": "ignore",
        },
        "stderr": subprocess.PIPE,
        "text": True,
    }
    flags = f"{RUNS[name]} {QUIET} --run_dir=FOLDER/{name}"
    for needed in re.findall(r"FOLDER/([\w.-]+)", RUNS[name]):
        if needed in RUNS:
            run(needed, source, parent)
        elif not (parent / needed).exists():
            run(Path(RUN).name, source, parent)
            played = (
                f"evaluate {RUN} --episodes=10 --record={DEMONSTRATIONS} --output=FOLDER/played"
            )
            _call([*harness.MAIN, *_arguments(played, parent)], needed, options)
    command = [*program, *_arguments(flags, parent)]
    trusted = [x for x in command if OWN in x]
    if name.startswith(KILLED):
        num_rows = NUM_ROWS_BEFORE_KILL.get(name.rpartition("-")[2], MOST_ROWS_BEFORE_KILL)
        with subprocess.Popen(command, **options) as process:
            while process.poll() is None and harness.num_rows(folder) < num_rows:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        command = [*program, f"--resume={folder}", *trusted]
    elif name.startswith(STOPPED):
        _call([*command, "--stop_when=iteration>=4"], name, options)
        command = [*program, f"--resume={folder}", "--stop_when=none", *trusted]
    _call(command, name, options)


def _arguments(flags: str, parent: Path) -> list[str]:
    """Split flags, in which FOLDER is the folder of all runs."""
    return flags.replace("FOLDER", str(parent)).split()


def _call(command: list[str], name: str, options: dict[str, Any]) -> None:
    """Run a command. Raises SystemExit if it fails."""
    done = subprocess.run(command, **options)
    if done.returncode:
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr}")


def digest(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 of each thing that a run leaves, in hexadecimal."""
    tensors, episodes = hashlib.sha256(), hashlib.sha256()
    with safe_open(folder / "checkpoints" / "last.safetensors", "np") as file:
        for name in sorted(file.keys(), key=old_name):
            table = file.get_tensor(name)
            about = f"{old_name(name)} {table.dtype} {table.shape}"
            part = episodes if name.startswith("episodes") else tensors
            part.update(about.encode() + table.tobytes())
    run = harness.read_run(folder)
    rows = harness.without_times(run.rows)
    metrics = [
        {old_name(name): x for name, x in row.items() if name not in NOT_IN_ALL} for row in rows
    ]
    means = [{name: x for name, x in row.items() if OF_EPISODES.match(name)} for row in metrics]
    episodes.update(json.dumps(means).encode())
    others = [{name: x for name, x in row.items() if name not in means[0]} for row in metrics]
    texts = {
        "metrics": json.dumps(others),
        "evaluation": json.dumps(run.summary["evaluation"]),
    }
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return {"tensors": tensors.hexdigest(), "episodes": episodes.hexdigest(), **digests}


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
    if given.only or not given.write:
        recorded = json.loads(given.recorded.read_text())["digests"]
    parent = given.keep or Path(tempfile.mkdtemp())
    found = {}
    any_differs = False
    for name in names:
        if find_spec(NEEDED.get(name, "json")) is None:
            print(f"{name}: left out, {NEEDED[name]} is not installed", flush=True)
            continue
        run(name, given.source.absolute(), parent.absolute())
        found[name] = digest(parent / name)
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
        digests = {**recorded, **found}
        content = json.dumps({"commit": commit, "digests": digests}, indent=1)
        given.recorded.write_text(content + "\n")
    sys.exit(any_differs)


if __name__ == "__main__":
    main()
