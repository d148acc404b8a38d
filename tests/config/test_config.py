"""Values that Config accepts, its defaults, and presets."""

import json
import re
from pathlib import Path

import pytest

from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.run.reader import run_folder
from ppo.run.trusted_settings import folder_to_resume
from tests.config.lines import assert_one_sentence, config_of, error_of


def test_defaults_are_those_of_the_baselines_command_line():
    expected = {
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_coef": 0.1,
        "value_coef": 0.5,
        "entropy_coef": 0.01,
        "num_envs": 8,
        "num_steps": 128,
        "num_epochs": 4,
        "num_minibatches": 4,
        "learning_rate": 2.5e-4,
        "max_grad_norm": 0.5,
        "device": "cpu",
    }
    assert expected.items() <= vars(Config()).items()
    assert config_of("") == Config()


# What is wrong, and on the bounds: test_fuzz.py has any text for any flag.
BAD = {
    "learning_rate": ["nan", "0", "-0.0", "1e31", "fast", "", "none", "linear:0", "falling:1"],
    "gamma": ["nan", "-0.1", "1.1"],
    "clip_coef": ["0", "inf"],
    "clip_value_coef": ["0", "linear:auto"],
    "entropy_coef": ["-1"],
    "target_kl": ["0"],
    "num_envs": ["0", "1.5", "1e400", "", "0x8", None, [1], True, float("nan"), b"1"],
    "num_minibatches": ["0", "1025"],
    "num_workers": ["-1", "9", "all"],
    "total_steps": ["-1", "1023"],
    "seed": ["-1", "4294967296"],
    "policy_layers": ["0", "64,", "64;64", "100000", "auto"],
    "value_layers": ["64," * 100 + "64"],
    "init_parts": ["", "weights", "policy,"],
    "freeze": ["policy,"],
    "env_name": [""],
    "model": ["resnet"],
    "device": ["tpu", "cuda:x", "cpu:0"],
    "logger": ["tensorbord", "none,wandb", "wandb,"],
    "torch_deterministic": ["maybe", "2", "none"],
    "frame_stack": ["0", "101"],
    "env_kwargs": ["[]", "3", "{"],
    "wrapper": ["a", "a:B)", "a:B(1"],
    "screen_size": ["0", "84x84"],
    "sticky_actions": ["1.1"],
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_is_answered_by_one_sentence_with_its_flag(name):
    for value in BAD[name]:
        with pytest.raises(ConfigError) as caught:
            Config(**{name: value})
        assert_one_sentence(str(caught.value), f"--{name}=")
        assert re.search(": (expected|give) ", str(caught.value))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            "--clip_rewards --normalize_rewards",
            ["--normalize_rewards=True", "--clip_rewards=False"],
        ),
        ("--num_envs=2 --num_workers=3", ["--num_workers=3", "--num_envs=2"]),
        ("--num_envs=2 --num_steps=3 --num_minibatches=7", ["--num_minibatches=7", "6 steps"]),
        ("--num_envs=2 --num_steps=30 --total_steps=59", ["--total_steps=59", "60 steps"]),
    ],
)
def test_values_that_contradict_each_other_are_both_named(line, named):
    assert_one_sentence(error_of(line), *named)


def test_iterations_are_whole_rollouts_and_at_most_those_asked_for():
    run = {"total_steps": 200_000, "num_envs": 4, "num_steps": 128}
    assert Config(**run).iterations == 390  # 390.6
    assert Config(**run, num_iterations=10).iterations == 10
    assert Config(**run, num_iterations=391).iterations == 390


def schedule(remaining: float) -> float:
    return remaining


def test_the_state_of_a_config_is_json() -> None:
    state = Config(learning_rate=schedule, clip_coef=lambda remaining: 0.1).__getstate__()
    assert state.keys() == vars(Config()).keys()
    assert state["learning_rate"] == "tests.config.test_config:schedule"
    assert json.loads(json.dumps(state)) == state
    del state["learning_rate"], state["clip_coef"]
    assert Config(**state) == Config()


def test_runs_are_found_by_path_or_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_folder("mine") == Path("mine")
    (tmp_path / "runs" / "mine" / "checkpoints").mkdir(parents=True)
    assert run_folder("mine") == Path("runs/mine")
    assert run_folder("runs/mine") == Path("runs/mine")


def test_the_folder_to_resume_is_that_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun = Path("begun")
    (begun / "checkpoints").mkdir(parents=True)
    (begun / "checkpoints" / ".tmp-000000000000.safetensors").touch()
    saved = Path("saved")
    (saved / "checkpoints").mkdir(parents=True)
    (saved / "checkpoints" / "000000000100.safetensors").touch()
    Path("runs/named").mkdir(parents=True)
    assert folder_to_resume({}) is None
    assert folder_to_resume({"resume": "None"}) is None  # as null in a file of flags
    assert folder_to_resume({"resume": "none", "run_dir": "saved"}) is None
    assert folder_to_resume({"resume": "auto", "run_dir": "saved"}) == saved
    assert folder_to_resume({"resume": "auto", "run_dir": "begun"}) is None
    assert folder_to_resume({"resume": "auto", "run_dir": "new"}) is None
    assert folder_to_resume({"resume": "saved", "run_dir": "saved"}) == saved
    assert folder_to_resume({"resume": "named"}) == Path("runs/named")
    (tmp_path / "seeds" / "s0" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"--resume=seeds has runs in it: give one of them, s0"):
        folder_to_resume({"resume": "seeds"})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"resume": "auto"}, "--resume=auto: give --run_dir"),
        ({"resume": "auto", "run_dir": ""}, "--resume=auto: give --run_dir"),
        ({"resume": "nowhere"}, "--resume=nowhere: there is no such folder"),
        ({"resume": "saved", "run_dir": "begun"}, "--run_dir=begun: leave it out"),
    ],
)
def test_flags_that_name_no_run_to_resume_are_refused(
    given: dict[str, str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("begun", "saved"):
        Path(name).mkdir()
    with pytest.raises(ConfigError) as caught:
        folder_to_resume(given)
    assert_one_sentence(str(caught.value), named)
