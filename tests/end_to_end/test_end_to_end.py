"""main.py as its users call it."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from ppo.run.folder import fault_kinds
from tests.running import ROOT, Call, metrics, run_main

COLUMNS = """
    iteration step seconds steps_per_second episodes episode_return_mean episode_length_mean loss
    policy_loss value_loss entropy approx_kl clip_fraction grad_norm explained_variance
    gradient_steps skipped_steps learning_rate clip_coef seconds_collecting seconds_learning
"""
SUMMARY = "env_name seed steps seconds steps_per_second episodes mean_return stopped evaluation"


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
        f"files in {path}: metrics.csv, .*",
        f"next: python main.py evaluate {path}",
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
    wanted = {"env_name": "LunarLander-v3", "model": "mlp", "device": "cpu"}
    assert wanted.items() <= config.items()
    assert config["num_workers"] == min(4, len(os.sched_getaffinity(0)))
    assert config["clip_value_coef"] is None
    assert config["versions"].keys() >= {"python", "torch", "gymnasium", "numpy"}
    assert config["git_commit"] is None or len(config["git_commit"]) == 40
    with (folder / "metrics.csv").open() as file:
        faults = [f"faults/{name}" for name in fault_kinds()]
        assert file.readline().strip().split(",") == [*COLUMNS.split(), *faults]
    rows = metrics(folder)
    assert [(int(row["iteration"]), int(row["step"])) for row in rows] == [
        (i, 256 * i) for i in range(1, 6)
    ]
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["env_name"], summary["seed"], summary["steps"]) == ("LunarLander-v3", 0, 1280)
    assert summary["evaluation"]["episodes"] == 3
    assert summary["mean_return"] == pytest.approx(float(rows[-1]["episode_return_mean"]), rel=1e-5)
    assert summary.keys() == {*SUMMARY.split()}


@pytest.mark.parametrize(
    "run",
    [
        "--env_name=CartPole-v1 --total_steps=2560 --num_workers=2",
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


PIXELS = (
    "--num_iterations=2 --num_epochs=1 --eval_episodes=0 --num_envs=2 --num_steps=16 "
    "--num_minibatches=2 --total_steps=64"
)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            '--env="PongNoFrameskip-v4" --model="cnn" --end_on_life_loss=True --clip_rewards=True',
            "observations: (210, 160) 84 x 84, 4 stacked\nimages: frame skip 4, sticky actions 0.0",
        ),
        (
            "--env_name=ALE/Qbert-v5 --model=impala --sticky_actions=0 --frame_skip=2",
            "frame skip 2, sticky actions 0.0",
        ),
        (
            "--env_name=CarRacing-v3 --model=cnn --precision=float32",
            "images: frame skip 4, frame stack 4",
        ),
    ],
)
def test_images_train(arguments: str, said: str, tmp_path: Path) -> None:
    done = run_main(*shlex.split(arguments), *PIXELS.split(), f"--run_dir={tmp_path / 'run'}")
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout
    is_atari = "CarRacing" not in arguments
    if is_atari:
        assert "learning_rate=0.0005" in done.stdout  # of the family's preset
    rows = metrics(tmp_path / "run")
    assert [row["iteration"] for row in rows] == ["1", "2"]
    assert all(np.isfinite(float(row["grad_norm"])) for row in rows)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["share_trunk"]
    assert not config["normalize_observations"]
    assert config["normalize_rewards"] != is_atari  # the preset of CarRacing says so


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
    assert config["total_steps"] // (config["num_envs"] * config["num_steps"]) == 390
    assert config["clip_value_coef"] == "auto"
    assert len(metrics(tmp_path / "run")) == 3


BAD_INPUT = {
    "--env_nam=CartPole-v1": "unknown flag --env_nam: did you mean --env_name?",
    "--env_name=CartPol-v1": "--env_name=CartPol-v1 is unknown: did you mean CartPole-v1",
    "--env_name=no_such_module:Thing-v0": "cannot be made: No module named",
    "--env_name=tests.misbehaving:Nothing": "observes Box([], [], (0,), float32)",
    "--env_name=CarRacing-v3 --model=mlp": "--model=mlp reads vectors (images are uint8), and "
    "these observations are observation uint8 (84, 84, 4): give --model=cnn",
    "--env_name=CartPole-v1 --model=cnn": "--model=cnn reads images",
    "--env_name=Pong-v4 --screen_size=20": "--screen_size=20 is too small for this network",
    "--env_name=CarRacing-v3 --preset=Atari": "--end_on_life_loss means nothing for CarRacing-v3",
    "--env_name=CartPole-v1 --screen_size=20": "--screen_size means nothing for CartPole-v1",
    "--env_name=Pong-v4 --normalize_rewards": "--normalize_rewards=True: leave it out with clipped",
    "--env_name=Pong-v4 --normalize_observations": "--normalize_observations is for vectors",
    "--env_name=tests.environments:Lights --normalize_keys=arm.position,arm.camera": "arm.camera "
    "is no part that it may name: give some of arm.position",
    "--wrapper=builtins:exit": "--wrapper=builtins:exit does not fit the environment",
    '--env_kwargs={{"self":1}}': "self",
    "--env_name=CartPole-v1 --device=cuda:7": "--device=cuda:7 cannot be used (",
    "--preset=mine": "--preset=mine: give auto, none, a .json file, Acrobot-v1, ",
    "--config={used}/file": "file: it cannot be read",
    "--run_dir={used}": "is not empty, and no run is overwritten: choose another",
    "--run_dir={used}/file/run": "cannot be written to (Not a directory)",
    "--run_dir={used}/\udcff": "\\udcff: expected string",
    "--resume={used}/nowhere": "nowhere: there is no such folder; give that of a run",
    "--seeds=99999999999": "--seeds=99999999999: expected integer >= 1 and <= 1000",
    "--seed=4294967295 --seeds=2": "--seed=4294967296: expected integer >= 0 and <=",
    "--seed=a\vb": "--seed=a b: expected integer",
}


@pytest.mark.parametrize("arguments", BAD_INPUT)
def test_bad_input_is_one_sentence(
    arguments: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = tmp_path / "used"
    used.mkdir()
    nested = "[" * 100_000
    (used / "file").write_text(nested)
    monkeypatch.chdir(tmp_path)
    code, printed, errors = call(*arguments.format(used=used).split(" "))
    assert (code, printed) == (2, "")
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert BAD_INPUT[arguments] in errors
    assert "pip install" not in errors  # never a package by a name that the user made up
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "used"]
    assert (used / "file").read_text() == nested


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


# Odd input and surroundings.

TINY = (
    *("--env_name=CartPole-v1", "--preset=none", "--num_envs=1", "--num_steps=8"),
    *("--num_minibatches=1", "--num_workers=0", "--total_steps=64", "--eval_episodes=0"),
)
CALLBACK = """
import numpy as np
from ppo import Callback

class Keeper(Callback):
    def state_dict(self):
        return {{"value": {value}}}

    def load_state_dict(self, state):
        print("restored", np.asarray(state["value"]).tolist())
"""
ENVIRONMENT = """
import gymnasium
import numpy as np
from gymnasium import spaces

class Odd(gymnasium.Env):
    observation_space = {observations}
    action_space = {actions}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {{}}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {{}}
"""


def one_error(done: subprocess.CompletedProcess[str]) -> str:
    """Return the only line on stderr, which is an error."""
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.slow
def test_a_state_that_cannot_be_saved_is_refused_at_the_start(tmp_path: Path) -> None:
    keeper = "--callback=keeper.py:Keeper"
    for index, value in enumerate(["{1, 2}", "b'bytes'", "np.array([None])"]):
        (tmp_path / "keeper.py").write_text(CALLBACK.format(value=value))
        done = run_main(*TINY, keeper, f"--run_dir=run{index}", cwd=tmp_path)
        assert "callbacks.Keeper.0.value is " in one_error(done)
        assert not (tmp_path / f"run{index}" / "metrics.csv").exists()
    (tmp_path / "keeper.py").write_text(CALLBACK.format(value="np.arange(6)[::-2]"))
    assert run_main(*TINY, keeper, "--run_dir=saved", cwd=tmp_path).returncode == 0
    done = run_main("--resume=saved", keeper, "--total_steps=72", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "restored [5, 3, 1]" in done.stdout


def test_a_working_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec {sys.executable} {ROOT / 'main.py'} --verbose=0"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert "the working folder cannot be found" in one_error(done)


@pytest.mark.slow
def test_half_of_torchruns_variables_are_named(tmp_path: Path) -> None:
    for variables in (
        {"RANK": "0", "WORLD_SIZE": "2"},
        {"WORLD_SIZE": "many"},
        {"RANK": "3", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
    ):
        environment = {**os.environ, **variables}
        done = run_main(*TINY, f"--run_dir={tmp_path / 'run'}", env=environment)
        assert "start the ranks by torchrun" in one_error(done)


UNIT_BOX = "spaces.Box(-1, 1, (2,))"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("observations", "actions", "said"),
    [
        (UNIT_BOX, f"{UNIT_BOX}; action_space.low[:] = np.nan", "nan"),
        ("spaces.Discrete(10**10)", "spaces.Discrete(2)", "observations of 10,000,000,000 numbers"),
        (UNIT_BOX, "spaces.Discrete(10**9)", "its actions of 1,000,000,000 numbers are too large"),
        ("spaces.Box(-1, 1, (400_000,))", "spaces.Discrete(2)", ""),
    ],
)
def test_a_space_that_no_run_can_bear_is_named(
    tmp_path: Path, observations: str, actions: str, said: str
) -> None:
    text = ENVIRONMENT.format(observations=observations, actions=actions)
    (tmp_path / "odd.py").write_text(text)
    size = "--hidden_size=4096" if said else "--total_steps=8"
    done = run_main(*TINY, "--env_name=odd.py:Odd", "--run_dir=run", size, cwd=tmp_path)
    if said:
        assert said in one_error(done)
    else:
        assert done.returncode == 0, done.stderr
        assert "this run is large: 0.0 GiB of observations in a rollout, 51," in done.stdout


def test_an_output_that_is_no_file_is_named(cartpole_run: Path, tmp_path: Path, call: Call) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for output in ("/dev/full", "/dev/null", fifo, tmp_path):
        code, _, errors = call("evaluate", str(cartpole_run), "--episodes=1", f"--output={output}")
        assert (code, errors.count("\n")) == (2, 1)
        assert f"error: --output={output} cannot be" in errors
