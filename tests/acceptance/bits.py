"""Bits: short runs of every kind leave the same numbers as those of version 2, tensor by tensor,
column by column, and in the final evaluation. What the base's runs leave is kept for next time."""

import hashlib
import json
import re
import shutil
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np

from ppo.process import available_cores
from tests.acceptance.tree import ENVIRONMENTS, Tree, summary, tensors, without_times

NEEDS_BASE = True
NAMES: dict[str, str] = {}  # version 3's names of tensors and columns: those of version 2
KEPT = Path(tempfile.gettempdir(), "ppo-acceptance-base")
STATES = ("model.", "optimizer.", "normalize_observation.", "normalize_reward.")
TENSORS = (*STATES, "next.")
NEEDED = (*STATES, "iteration", "step", "episode_return_mean", "env/", "evaluation ")
PACKAGES = ("ale-py", "envpool", "gymnasium", "mujoco", "numpy", "pettingzoo", "torch")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")


def world(name: str, /, **options: Any) -> str:
    """Return the flags for an environment of worlds.py with episodes of nine steps."""
    text = json.dumps({"length": 9, **options}, separators=(",", ":"))
    return f"--env_name=worlds:{name} --env_kwargs={text}"


ALWAYS = "--logger=none --eval_episodes=3 --seed=5 --checkpoint_every=3"
SIZE = "--preset=none --num_envs=4 --num_steps=64"
TWO = f"{SIZE} --num_workers=2 --total_steps=2048"
NONE = f"{SIZE} --num_workers=0 --total_steps=2048"
LONG = f"{SIZE} --num_workers=2 --total_steps=25600"
CARTPOLE = f"--env_name=CartPole-v1 {TWO}"
ALONE = f"--env_name=CartPole-v1 {NONE}"
CAR = "--env_name=MountainCarContinuous-v0 --max_episode_steps=200"
BOX = f"{CAR} {TWO}"  # of [-1, 1]: version 2 does not scale to all others
PIXELS = "--preset=none --num_envs=4 --num_steps=16 --num_workers=2 --total_steps=256"
PONG = f"--env_name=PongNoFrameskip-v4 {PIXELS} --max_episode_steps=50 --clip_rewards=True"
CAMERA = f"{world('Echo', shows='dict')} {PIXELS} --screen_size=40"
HIDDEN = f"{world('Cue')} --hidden_size=32"
SLIPPERY = "--env_name=resumable:Slippery --max_episode_steps=500 --callback=resumable:Harder"
TEAM = "--env_name=worlds:Team --preset=none --num_envs=6 --num_steps=64 --total_steps=3072"
SYNC = '--env_name=gymnasium:make_vec --env_kwargs={"id":"CartPole-v1","vectorization_mode":"sync"}'
POLICY, PLAYED = "FOLDER/policy", "FOLDER/played.npz"  # what is made before
CASES = {
    "first command": "--env_name=LunarLander-v2 --model=mlp --total_steps=16384",
    "mlp two workers": CARTPOLE,
    "mlp no workers": ALONE,
    "mlp preset": "--env_name=CartPole-v1 --total_steps=4096 --num_workers=2",
    "mlp lunarlander": f"--env_name=LunarLander-v3 {TWO} --eval_every=2",
    "mlp relu shared": f"{CARTPOLE} --activation=relu --share_trunk=True",
    "mlp gelu": f"{CARTPOLE} --activation=gelu --hidden_size=32 --num_layers=3",
    "mlp large minibatches": f"{ALONE} --hidden_size=256 --num_minibatches=1",
    "box": f"--env_name=LunarLanderContinuous-v3 {TWO}",
    "box no workers": f"{CAR} {NONE}",
    "box mujoco": f"--env_name=HalfCheetah-v5 {TWO} --hidden_size=256",
    "cnn": f"{PONG} --model=cnn",
    "cnn float32": f"{PONG} --model=cnn_small --precision=float32 --frame_stack=1",
    "cnn lstm": f"{PONG} --model=lstm --precision=float32 --hidden_size=32",
    "schedules": f"{CARTPOLE} --learning_rate=linear:1e-3 --clip_coef=linear:0.2"
    " --entropy_coef=linear:0.01",
    "adaptive": f"{CARTPOLE} --learning_rate=adaptive:1e-3 --target_kl=0.01 --batch_size=50",
    "advantages": f"{CARTPOLE} --normalize_advantages=rollout --clip_value_coef=none",
    "masks": f"--env_name=worlds:Masked {TWO}",
    "dict with image": CAMERA,
    "keys": f"{CAMERA} --policy_keys=arm --value_keys=arm,camera",
    "gsde": f"{BOX} --use_sde --sde_sample_freq=4",
    "stack": f"{BOX} --frame_stack=3 --frame_skip=2",
    "far from zero": f"{world('Echo', shows='far')} {TWO}",
    "lstm": f"{HIDDEN} {TWO} --model=lstm",
    "gru": f"{HIDDEN} {TWO} --model=gru",
    "learner acts": f"{CARTPOLE} --inference=learner",
    "learner acts on images": f"{PONG} --model=cnn --inference=learner",
    "own network": f"{CARTPOLE} --model=own_network:OwnNetwork",
    "two ranks": CARTPOLE,
    "two ranks lstm": f"{HIDDEN} {NONE} --model=lstm",
    "two ranks team": f"{TEAM} --num_workers=0 --batch_size=50",
    "two ranks teacher": f"{CARTPOLE} --teacher={POLICY}",
    "curriculum": f"{SLIPPERY} {TWO}",
    "batch": f"{SYNC} {TWO}",
    "batch no workers": f"{SYNC} {NONE}",
    "batch next step": f"{world('together', world='Cue', mode='NextStep')} {NONE}",
    "batch same step": f"{world('together', world='Cue', mode='SameStep')} {NONE}",
    "batch disabled": f"{world('together', world='Cue', mode='Disabled')} {NONE}",
    "batch tensors": f"{world('together', world='Cue', mode='NextStep', library='torch')} {NONE}",
    "batch envpool": f"--env_name=EnvPool/CartPole-v1 --eval_env=CartPole-v1 {TWO}",
    "team": f"{TEAM} --num_workers=2",
    "team rollout advantages": f"{TEAM} --num_workers=0 --normalize_advantages=rollout",
    "team lstm": f"{TEAM} --num_workers=0 --model=lstm --hidden_size=32",
    "init from": f"{ALONE} --init_from={POLICY}",
    "freeze": f"{CARTPOLE} --init_from={POLICY} --freeze=policy_trunk",
    "freeze gelu": f"{ALONE} --freeze=value_trunk --activation=gelu",
    "critic warm-up": f"{CARTPOLE} --init_from={POLICY} --critic_warmup=3",
    "critic warm-up lstm": f"{HIDDEN} {NONE} --model=lstm --critic_warmup=2",
    "teacher": f"{CARTPOLE} --teacher={POLICY}",
    "cloning": f"{CARTPOLE} --demonstrations={PLAYED} --critic_warmup=2",
    "stopping": f"--env_name=CartPole-v1 {LONG} --stop_when=episode_return_mean>80",
    "patience": f"{BOX} --eval_every=1 --patience=2",
    "killed and resumed": f"--env_name=CartPole-v1 {LONG}",
    "killed and resumed curriculum": f"{SLIPPERY} {LONG}",
    "stopped and resumed batch": f"{SYNC} {SIZE} --num_workers=2 --total_steps=1024",
}
ROUNDED = ("lstm", "gru", "cnn lstm", "two ranks lstm", "critic warm-up lstm")  # numpy acted
BOUNDS = {**dict.fromkeys(ROUNDED, (0.0, 1e-6)), "team lstm": (1e-3, 0.5)}  # measured: 0.06, 0.25
BOUNDS["learner acts on images"] = (0.0, 1e-2)  # 2.0.1 acts for one half of them after the other
MARKS = {"team lstm": "agents that come late are learned from other states than those that acted"}


def check(name: str, tree: Tree, base: Tree, folder: Path) -> str:
    ours = tables_of(name, tree, folder / "tree")
    theirs = kept_tables(name, base, folder / "base")
    needed = {x for x in ours.keys() | theirs.keys() if x.startswith(NEEDED)}
    compared = needed | (ours.keys() & theirs.keys())
    if name in ("dict with image", "keys"):  # version 3 has a table of its own for each image
        compared -= {"next.observations"}
    sizes = {x: difference(ours.get(x), theirs.get(x)) for x in compared}
    least, most = BOUNDS.get(name, (0.0, 0.0))
    if max(size for x, size in sizes.items() if x.startswith("model.")) < least:
        return f"weights do not differ, but must by {least} or more"
    # Of a metric more: a row that is clipped counts, and version 3 evaluates more rows at once.
    limits = {x: most if x.startswith(TENSORS) else max(most * 1e3, 1e-6) for x in compared}
    wrong = [x for x in compared if sizes[x] > limits[x]]
    each = ", ".join(f"{x} by {sizes[x]:.1e}" for x in sorted(wrong, key=lambda x: -sizes[x]))
    return f"{len(wrong)} of {len(sizes)} differ: {each}" if wrong else ""


def difference(ours: np.ndarray | None, theirs: np.ndarray | None) -> float:
    """Return the largest difference, relative to values above 1; infinity for other shapes."""
    if ours is None or theirs is None or ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return np.inf
    a, b = (np.nan_to_num(table.astype(float), nan=-1e9) for table in (ours, theirs))
    return float((np.abs(a - b) / np.maximum(1, np.abs(b))).max(initial=0))


def kept_tables(name: str, base: Tree, folder: Path) -> dict[str, np.ndarray]:
    """Return what the base's run leaves, which is trained unless this has been done before."""
    path = KEPT / f"{name} {fingerprint(base.folder, CASES[name])}.npz"
    if not path.exists():
        np.savez(folder.with_suffix(".npz"), **tables_of(name, base, folder))
        KEPT.mkdir(exist_ok=True)
        shutil.move(folder.with_suffix(".npz"), path)
    with np.load(path) as file:
        return dict(file)


def fingerprint(folder: Path, flags: str) -> str:
    """Name what a run's numbers depend on: source, flags, processor and cores, packages."""
    files = [*folder.rglob("*.py"), *folder.glob("ppo/**/*.json"), *ENVIRONMENTS.glob("*.py")]
    cpu = re.findall(r"(?:model name|flags)\s*: .*", Path("/proc/cpuinfo").read_text())[:2]
    versions = sorted(f"{x.name} {x.version}" for x in distributions() if x.name in PACKAGES)
    texts = " ".join([ALWAYS, flags, *cpu, *versions, str(available_cores())]).encode()
    return hashlib.sha256(texts + b"".join(map(Path.read_bytes, sorted(files)))).hexdigest()


def tables_of(name: str, tree: Tree, folder: Path) -> dict[str, np.ndarray]:
    """Train a run of a kind; return its tensors, its columns and the results of its evaluation."""
    run = train(name, tree, folder)
    found = {x: table for x, table in tensors(run).items() if x.startswith(TENSORS)}
    if not found["normalize_observation.count"].any():  # of images
        found = {x: y for x, y in found.items() if not x.startswith("normalize_observation.")}
    metrics = without_times(run)
    for column in metrics[0]:
        found[column] = np.array([float(row[column] or "nan") for row in metrics])
    for result in ("mean", "std", "returns", "lengths"):
        found[f"evaluation {result}"] = np.array(summary(run)["evaluation"][result], float)
    return {NAMES.get(x, x): table for x, table in found.items()}


def train(name: str, tree: Tree, folder: Path) -> Path:
    """Train a run of a kind after what it needs; kill or stop it and resume it if it says so."""
    folder.mkdir()
    run = folder / "run"
    flags = f"{CASES[name]} {ALWAYS} --run_dir={run}".replace("FOLDER", str(folder))
    if POLICY in CASES[name]:
        made = tree.run(f"{ALONE} {ALWAYS} --run_dir={folder}/policy", folder)
        assert made.code == 0, made.err
    if PLAYED in CASES[name]:
        write_demonstrations(folder / "played.npz")
        imitation = tree.folder / "examples" / "imitation.py"
        if imitation.exists():
            callback = rf"--callback={imitation}:Cloning(file='\1')"
            flags = re.sub(r"--demonstrations=(\S+)", callback, flags)
    torchrun = TORCHRUN if name.startswith("two ranks") else ()
    program = (sys.executable, *torchrun, str(tree.folder / "main.py"))
    options: Any = {"program": program, "env": {"OMP_NUM_THREADS": "2"}}
    process = tree.start(flags, folder, **options)
    if "killed" in name:
        process.wait_for_rows(run, 39)
        process.process.kill()
    done = process.wait()
    if "resumed" in name:
        assert done.code == (-9 if "killed" in name else 0), f"exit code {done.code}: {done.err}"
        own = [word for word in flags.split() if re.match("--(env_name|callback)=.*:", word)]
        more = [] if "killed" in name else ["--total_steps=2048"]
        done = tree.start([f"--resume={run}", *own, *more], folder, **options).wait()
    assert done.code == 0, f"exit code {done.code}: {done.err}"
    return run


def write_demonstrations(path: Path) -> None:
    """Write ten episodes of ten steps in CartPole's spaces."""
    random = np.random.default_rng(0)
    observations = random.uniform(-0.2, 0.2, (110, 4)).astype(np.float32)
    ends = np.arange(100) % 10 == 9
    tables = {"actions": random.integers(2, size=100), "terminations": ends}
    np.savez(path, observations=observations, truncations=np.zeros_like(ends), **tables)
