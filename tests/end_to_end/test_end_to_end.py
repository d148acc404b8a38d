"""main.py as its users call it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from safetensors import safe_open

import main
from ppo.envs.seeding import Stream, integer_seed
from ppo.run.folder import fault_kinds
from tests.environments import Faulty
from tests.running import ROOT, command, metrics, nothing_left, on_terminal, run_main

COLUMNS = [
    "iteration",
    "step",
    "seconds",
    "steps_per_second",
    "episodes",
    "episode_return_mean",
    "episode_length_mean",
    "loss",
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "grad_norm",
    "explained_variance",
    "gradient_steps",
    "skipped_steps",
    "learning_rate",
    "clip_coef",
    "seconds_collecting",
    "seconds_learning",
    *(f"faults/{name}" for name in fault_kinds()),
]


class BadStart(Faulty):
    """Raises in the first reset of its training."""

    def __init__(self) -> None:
        super().__init__("start")

    def reset(self, **arguments: Any) -> tuple[np.ndarray, dict]:
        if arguments["seed"] == integer_seed(0, Stream.EPISODE, 0, 0):
            raise ValueError("not ready")
        return super().reset(**arguments)


class Talk(gymnasium.Env):
    """Show lists of words, which have no fixed length."""

    observation_space = spaces.Sequence(spaces.Text(9))
    action_space = spaces.Discrete(2)


def tensors(folder: Path) -> dict[str, np.ndarray]:
    with safe_open(folder / "checkpoints" / "last.safetensors", "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)


@pytest.fixture(scope="module")
def lander(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess]:
    """A short run of the command in the README, with its old environment id."""
    folder = tmp_path_factory.mktemp("runs") / "lander"
    arguments = shlex.split(
        '--env_name="LunarLander-v2" --model="mlp" --num-envs=4 --num_steps=64 --num_minibatches=4'
    )
    done = run_main(*arguments, "--total_steps=1300", "--eval_episodes=3", f"--run_dir={folder}")
    assert done.returncode == 0, done.stderr
    return folder, done


def test_the_console_shows_settings_progress_and_results(
    lander: tuple[Path, subprocess.CompletedProcess],
) -> None:
    folder, done = lander
    path = os.path.relpath(folder, ROOT)
    shown = (
        "LunarLander-v2 is now LunarLander-v3",
        r"tuned preset \(turned off by --preset=none\): (?!.*num_envs).*gamma=0\.995.*",
        f"run folder: {folder}",
        "trains 1,280 steps, as whole rollouts of 256",
        "step 256 of 1,280, .*",
        "step 1,280 of 1,280, .*",
        "evaluation: .* over 3 deterministic episodes",
        r"time: (?P<collecting>\d+)% collecting, (?P<learning>\d+)% learning: .* the speed",
        f"files: {path}/metrics.csv, .*",
        f"next: ppo evaluate {path} --episodes=100",
    )  # in this order, whatever is between; num_envs was given by hand, not by the preset
    found = re.search("^" + r"$(?:\n.*)*?\n^".join(shown) + "$", done.stdout, re.MULTILINE)
    assert found, done.stdout
    assert 99 <= int(found["collecting"]) + int(found["learning"]) <= 101
    assert "\r" not in done.stdout
    assert done.stderr == ""


def test_the_folder_has_settings_metrics_and_summary(
    lander: tuple[Path, subprocess.CompletedProcess],
) -> None:
    folder, _ = lander
    config = json.loads((folder / "config.json").read_text())
    assert (config["env_name"], config["model"], config["device"]) == (
        "LunarLander-v3",
        "mlp",
        "cpu",
    )
    assert config["num_workers"] == min(4, len(os.sched_getaffinity(0)))
    assert config["clip_value_coef"] is None
    assert config["versions"].keys() >= {"python", "torch", "gymnasium", "numpy"}
    assert config["git_commit"] is None or len(config["git_commit"]) == 40
    with (folder / "metrics.csv").open() as file:
        assert file.readline().strip().split(",") == COLUMNS
    rows = metrics(folder)
    assert [(int(row["iteration"]), int(row["step"])) for row in rows] == [
        (i, 256 * i) for i in range(1, 6)
    ]
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["env_name"], summary["seed"], summary["steps"]) == ("LunarLander-v3", 0, 1280)
    assert summary["evaluation"]["episodes"] == 3
    assert summary["mean_return"] == pytest.approx(float(rows[-1]["episode_return_mean"]), rel=1e-5)
    assert summary.keys() == {
        "env_name",
        "seed",
        "steps",
        "seconds",
        "steps_per_second",
        "episodes",
        "mean_return",
        "stopped",
        "evaluation",
    }


def test_the_checkpoint_holds_all_that_was_learned(
    lander: tuple[Path, subprocess.CompletedProcess],
) -> None:
    folder, _ = lander
    with safe_open(folder / "checkpoints" / "last.safetensors", "numpy") as file:
        state = json.loads(file.metadata()["state"])
    assert (state["format"], state["iteration"], state["step"]) == (4, 5, 1280)
    assert state["config"]["env_name"] == "LunarLander-v3"
    held = tensors(folder)
    assert held["model.policy_head.logits.weight"].shape == (4, 64)
    assert held["optimizer.exp_avg"].size == sum(
        v.size for name, v in held.items() if name.startswith("model.")
    )
    assert held["optimizer.step"] == 5 * 4 * 4
    assert held["normalize_observation.mean"].shape == (8,)
    assert held["normalize_observation.count"] == pytest.approx(1280, abs=1e-3)
    assert held["normalize_reward.returns"].shape == (4,)


@pytest.mark.parametrize(
    "run",
    [
        "--env_name=CartPole-v1 --total_steps=6144 --num_workers=2",
        pytest.param(
            "--env_name=ALE/Breakout-v5 --num_envs=3 --num_steps=8 --num_workers=2 "
            "--num_iterations=2 --eval_episodes=0 --num_epochs=1",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_same_command_gives_the_same_bits(tmp_path: Path, run: str) -> None:
    for name in ("a", "b"):
        done = run_main(*run.split(), "--seed=3", "--logger=none", f"--run_dir={tmp_path / name}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")
    first, second = tensors(tmp_path / "a"), tensors(tmp_path / "b")
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.tobytes() == second[name].tobytes()


PIXELS = "--model=cnn --num_iterations=2 --eval_episodes=0"
SMALL = "--num_envs=2 --num_steps=16 --num_minibatches=2 --total_steps=64"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            '--env="PongNoFrameskip-v4" --model="cnn" --end_on_life_loss=True --clip_rewards=True '
            f"{PIXELS} {SMALL}",
            "observations: (210, 160) 84 x 84, 4 stacked\nimages: frame skip 4, sticky actions 0.0",
        ),
        pytest.param(
            f"--env_name=ALE/Breakout-v5 {PIXELS} {SMALL}",
            "frame skip 4, sticky actions 0.25",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            f"--env_name=ALE/Qbert-v5 {PIXELS} {SMALL} --sticky_actions=0 --frame_skip=2",
            "frame skip 2, sticky actions 0.0",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            f"--env_name=CarRacing-v3 {PIXELS} {SMALL} --precision=float32",
            "images: frame skip 4, frame stack 4",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            f"--env_name=PongDeterministic-v4 {PIXELS} {SMALL} --model=impala",
            "PongDeterministic-v4 is now PongNoFrames",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_images_train(arguments: str, said: str, tmp_path: Path) -> None:
    done = run_main(*shlex.split(arguments), f"--run_dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert said in done.stdout
    if "CarRacing" not in arguments:
        assert "learning_rate=0.0005" in done.stdout  # of the family's preset
    rows = metrics(tmp_path / "run")
    assert [row["iteration"] for row in rows] == ["1", "2"]
    assert all(np.isfinite(float(row["grad_norm"])) for row in rows)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (
        config["normalize_observations"],
        config["normalize_rewards"],
        config["share_trunk"],
    ) == (
        False,
        "CarRacing" in arguments,  # whose preset says so
        True,
    )


@pytest.mark.slow
def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    flags = ("--env_name=CartPole-v1", "--num_workers=0", "--total_steps=2048", "--logger=none")
    for seed in ("1", "2"):
        run_main(*flags, f"--seed={seed}", f"--run_dir={tmp_path / seed}")
    assert metrics(tmp_path / "1") != metrics(tmp_path / "2")


def test_cartpole_is_solved_in_100_000_steps(tmp_path: Path) -> None:
    flags = ("--env_name=CartPole-v1", "--seed=1", "--num_workers=2", "--logger=none")
    done = run_main(*flags, f"--run_dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["evaluation"]["mean"] == 500


@pytest.mark.slow
def test_the_configuration_of_the_cleanrl_tutorial_by_its_own_names(tmp_path: Path) -> None:
    arguments = (
        "--preset=none --env_id=CartPole-v1 --total_timesteps=200000 --learning_rate=2.5e-4 "
        "--num_envs=4 --num_steps=128 --num_minibatches=4 --update_epochs=4 --gamma=0.99 "
        "--gae_lambda=0.95 --clip_coef=0.2 --vf_coef=0.5 --max_grad_norm=0.5 --ent_coef=0 "
        "--no_normalize_observations --no_normalize_rewards"
    )
    done = run_main(*arguments.split(), "--num_iterations=3", f"--run_dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (
        config["total_steps"] // (config["num_envs"] * config["num_steps"]),
        config["clip_value_coef"],
    ) == (
        390,
        "auto",
    )
    assert len(metrics(tmp_path / "run")) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--env_nam=CartPole-v1", "unknown flag --env_nam: did you mean --env_name?"),
        ("--env_name=CartPol-v1", "--env_name=CartPol-v1 is unknown: did you mean CartPole-v1"),
        (
            "--env_name=no_such_module:Thing-v0",
            "--env_name=no_such_module:Thing-v0 cannot be made: No module named",
        ),
        (
            "--env_name=tests.end_to_end.test_end_to_end:Talk",
            "--env_name=tests.end_to_end.test_end_to_end:Talk observes Sequence(",
        ),
        (
            "--env_name=CarRacing-v3 --model=mlp",
            "--model=mlp reads vectors (images are uint8), these observations are uint8 "
            "(84, 84, 4): give --model=cnn",
        ),
        ("--env_name=CartPole-v1 --model=cnn", "--model=cnn reads images"),
        (
            "--env_name=Pong-v4 --screen_size=20",
            "--screen_size=20 is too small for this network: give a larger one",
        ),
        (
            "--env_name=CarRacing-v3 --preset=Atari",
            "--end_on_life_loss means nothing for CarRacing-v3",
        ),
        (
            "--env_name=CarRacing-v3 --frame_skip=2 --noop_max=5",
            "--noop_max means nothing for CarRacing-v3",
        ),
        (
            "--env_name=Pong-v4 --normalize_rewards",
            "--normalize_rewards=True: leave it out with clipped ones",
        ),
        (
            "--env_name=CartPole-v1 --screen_size=20",
            "--screen_size means nothing for CartPole-v1: leave it out",
        ),
        (
            "--env_name=tests.environments:Lights --normalize_keys=arm.position,arm.camera",
            "--normalize_keys=arm.camera is no part that can be standardised: give some of "
            "arm.position",
        ),
        (
            "--env_name=CarRacing-v3 --end_on_life_loss",
            "--end_on_life_loss means nothing for CarRacing-v3",
        ),
        ("--env_name=Pong-v4 --normalize_observations", "--normalize_observations is for vectors"),
        ("--env_name=PongNoFrameskipp-v4", "is unknown: did you mean PongNoFrameskip-v"),
        ("--env_name=CartPole-v1 --device=cuda:7", "--device=cuda:7 cannot be used ("),
        (
            "--env_name=CartPole-v1 --device=gpu",
            "--device=gpu: expected cpu, cuda, cuda:N, mps or auto",
        ),
        ("--gamma=nan", "--gamma=nan: expected number >= 0 and <= 1"),
        (
            "--preset=none --num_envs=1 --num_steps=3",
            "--num_minibatches=4: give at most the 3 steps",
        ),
        ("--preset=none --total_steps=100", "--total_steps=100: give at least the 1024 steps"),
        ("--preset=mine", "--preset=mine: give auto, none, a .json file, Acrobot-v1, "),
        (
            "--env_name=CartPole-v1 --run_dir={used}",
            "is not empty, and no run is overwritten: choose another",
        ),
        (
            "--env_name=CartPole-v1 --run_dir={used}/file/run",
            "cannot be written to (Not a directory)",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: str,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert main.main(arguments.format(used=used).split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err
    assert "pip install" not in printed.err  # never a package by a name that the user made up
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "used"]
    assert (used / "file").read_text() == "mine"


def test_a_value_of_several_lines_is_answered_by_one(capsys: pytest.CaptureFixture) -> None:
    assert main.main(["--seed=a\nb"]) == 2
    assert capsys.readouterr().err == "error: --seed=a b: expected integer >= 0 and <= 4294967295\n"


@pytest.mark.slow
def test_an_environments_exception_reaches_the_user(tmp_path: Path) -> None:
    name = "tests.environments:Raises-v0"
    done = run_main(
        f"--env_name={name}", "--num_workers=0", f"--run_dir={tmp_path / 'run'}", "--num_envs=2"
    )
    assert done.returncode == 1
    warnings, _, rest = done.stderr.partition("Traceback (most recent call last):")
    assert warnings.startswith("warning: worker ")
    assert 'raise ValueError("a wheel came off")' in rest
    cause = rf"environment [01] of {name} raised ValueError: a wheel came off"
    *_, error = done.stderr.splitlines()
    assert re.fullmatch(
        rf"error: worker 0 was lost 4 times within 60 s, most recently because {cause}", error
    )


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("tests.environments:BadReset-v0", "environment {} raised ValueError: no reset today"),
        ("tests.environments:BadMake-v0", "environment {} raised ValueError: no licence"),
        (
            "tests.end_to_end.test_end_to_end:BadStart",
            "environment 0 of {} raised ValueError: not ready",
        ),
    ],
)
def test_an_exception_before_training_does_so_too(tmp_path: Path, name: str, what: str) -> None:
    arguments = ["--num_workers=1", f"--run_dir={tmp_path / 'run'}"]
    done = run_main(f"--env_name={name}", *arguments)
    assert done.returncode == 1
    traceback, error = done.stderr.rstrip("\n").rsplit("\n", 1)
    assert traceback.startswith("Traceback (most recent call last):")
    assert error.startswith(f"error: {what.format(name)}")


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    """Start a long run in a process group of its own; return after two iterations."""
    flags = ("--env_name=CartPole-v1", "--total_steps=100000000", f"--run_dir={folder}")
    process = subprocess.Popen(
        command(*flags, *arguments),
        cwd=ROOT,
        start_new_session=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (folder / "metrics.csv").exists() or len(metrics(folder)) < 2:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_saved(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = start(tmp_path / "run", "--num_workers=2")
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    last = int(metrics(tmp_path / "run")[-1]["step"])
    folder = tmp_path / "run"
    saved = f"stopped, saved in {folder}: --resume={folder} continues"
    assert errors == f"error: {number.name} after step {last}: {saved}\n"
    assert tensors(tmp_path / "run")["normalize_observation.count"] == pytest.approx(last, abs=1e-3)
    assert nothing_left(process.pid)


@pytest.mark.slow
def test_a_signal_is_no_bug_to_debug(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "--num_workers=0", "--debug")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors.count("\n") == 1


@pytest.mark.slow
def test_ctrl_c_while_workers_get_ready(tmp_path: Path) -> None:
    arguments = command(
        "--env_name=CartPole-v1", "--num_workers=2", f"--run_dir={tmp_path / 'run'}"
    )
    process = subprocess.Popen(
        arguments, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "run" / "metrics.csv").exists():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert nothing_left(process.pid)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_an_evaluation_at_once(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    folder = tmp_path / "run"
    arguments = [
        "--env_name=tests.environments:Endless-v0",
        "--preset=none",
        "--total_steps=1024",
        "--num_workers=2",
    ]
    heeding = partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # where tests run in the background, it is ignored
    options: dict[str, Any] = {"cwd": ROOT, "start_new_session": True, "preexec_fn": heeding}
    process = subprocess.Popen(command(*arguments, f"--run_dir={folder}"), **options)
    while not (folder / "checkpoints" / "000000001024.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(number)
    assert process.wait(timeout=20) == code
    assert nothing_left(process.pid)


def test_workers_die_with_the_trainer(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "--num_workers=2")
    process.kill()
    process.communicate(timeout=20)
    assert nothing_left(process.pid)


@pytest.mark.slow
def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    shown = on_terminal(
        "--env_name=CartPole-v1",
        "--total_steps=8192",
        "--num_workers=0",
        f"--run_dir={tmp_path / 'run'}",
    )
    assert "━" in shown
    assert " of 8,192" in shown
    assert "evaluation: " in shown


@pytest.mark.slow
def test_a_leap_of_the_policy_is_warned_of(tmp_path: Path) -> None:
    flags = ("--env_name=CartPole-v1", "--num_iterations=2", "--num_workers=0", "--eval_episodes=0")
    for learning_rate, warned in ((1, True), (1e-4, False)):
        done = run_main(
            *flags, f"--learning_rate={learning_rate}", f"--run_dir={tmp_path}/{warned}"
        )
        assert ("policy updates are too large (KL" in done.stderr) == warned


EXTRAS = {
    "evaluate RUN --episodes=1 --video=out.mp4": ("imageio", "video"),
    "plot RUN": ("matplotlib", "report"),
    "tune CartPole-v1": ("optuna", "tune"),
    "export RUN out.onnx": ("onnxscript", "export"),
}


@pytest.mark.slow
def test_without_what_only_some_need_all_else_works(cartpole_copy: Path, tmp_path: Path) -> None:
    for package in ("matplotlib", "tensorboard", "imageio", "optuna", "onnxscript"):
        text = f"raise ModuleNotFoundError('No module named {package}')"
        (tmp_path / f"{package}.py").write_text(text)
    paths = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": paths}
    flags = (
        "--preset=none",
        "--num_iterations=2",
        "--num_workers=0",
        "--logger=tensorboard",
        "--report",
    )
    run = tmp_path / "new"
    done = run_main("--env_name=CartPole-v1", *flags, f"--run_dir={run}", env=environment)
    assert done.returncode == 0, done.stderr
    assert "No module named tensorboard: pip install -e '.[tensorboard]'" in done.stderr
    assert "No module named matplotlib: pip install -e '.[report]'" in done.stderr
    reason = "No module named matplotlib: pip install -e &#x27;.[report]&#x27;"
    assert f"<p>The curves are not drawn: {reason}</p>" in (run / "report.html").read_text()
    lines = [
        line.replace("RUN", str(cartpole_copy)).replace("out.", f"{tmp_path}/out.")
        for line in EXTRAS
    ]
    program = "import sys, main; print([main.main(line.split()) for line in sys.argv[1:]])"
    one_process = [sys.executable, "-c", program, *lines]
    done = subprocess.run(one_process, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout == "[2, 2, 2, 2]\n"
    assert done.stderr.splitlines() == [
        f"error: No module named {package}: pip install -e '.[{extra}]'"
        for package, extra in EXTRAS.values()
    ]
