"""Actions of any bounds are learned: [-1, 1] is scaled to those that a normal does not fit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import main
from ppo import Config, load_policy, record, train
from ppo.errors import CheckpointError, ConfigError
from ppo.run.checkpoint import load, save
from tests.running import CARTPOLE, metrics, run_main

NAME = "tests.envs.test_action_scale:Aim"
QUICK = {
    "preset": "none",
    "num_envs": 16,
    "num_steps": 32,
    "num_epochs": 4,
    "total_steps": 20 * 512,
    "num_workers": 1,
    "learning_rate": "linear:0.01",
    "entropy_coef": 0.0,
    "eval_episodes": 100,
}
FLAGS = [f"--{name}={value}" for name, value in QUICK.items()]
QUIET = {**QUICK, "eval_episodes": 0, "verbose": 0, "report": False}
SHORT = {**QUIET, "total_steps": 3 * 512}
OTHER = '{"low": 300, "high": 500}'


class Aim(gymnasium.Env):
    """Episodes of one step: the best action is where the observation says, between the bounds.

    The reward is minus the distance, as a share of half the range; the best constant earns -0.5."""

    observation_space = Box(-1, 1, (1,))

    def __init__(self, low: Any, high: Any, dtype: str = "float32", hybrid: bool = False) -> None:
        low, high = np.atleast_1d(low), np.atleast_1d(high)
        self.box = Box(low.astype(dtype), high.astype(dtype), dtype=np.dtype(dtype).type)
        self.action_space: Any = self.box
        if hybrid:
            self.action_space = Dict({"choice": Discrete(2), "number": self.box})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.goal = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.goal, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        number = action["number"] if isinstance(action, dict) else action
        low, high = (bound.astype(float) for bound in (self.box.low, self.box.high))
        width = np.where(np.isfinite(high - low) & (high > low), high - low, 1)
        share = 2 * (number - low) / width - 1 if np.isfinite(low).all() else number
        return self.goal, -float(np.abs(share - self.goal).mean()), True, False, {}


def kwargs_of(low: Any, high: Any, **more: Any) -> dict[str, Any]:
    return {"env_name": NAME, "env_kwargs": {"low": low, "high": high, **more}}


def without_the_flag(path: Path, new: Path) -> Path:
    """Write a checkpoint as a version wrote it that did not scale."""
    state = load(path)
    del state["config"]["scale_actions"]
    save(new, state)
    return new


@pytest.fixture(scope="module")
def unscaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of before actions were scaled."""
    folder = tmp_path_factory.mktemp("runs") / "old"
    train(**SHORT, env=NAME, env_kwargs=json.loads(OTHER), scale_actions=False, run_dir=str(folder))
    (path,) = (x for x in (folder / "checkpoints").glob("0*") if "1536" in x.name)
    without_the_flag(path, path)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (300, 500, "float32"),
        (-1000, 1000, "float64"),
        (0.001, 0.002, "float32"),
        (0, 255, "uint8"),
        (-0.001, 0.001, "float32"),
        (0, 10, "float32"),
    ],
)
def test_actions_of_any_bounds_are_learned(
    low: float, high: float, dtype: str, tmp_path: Path
) -> None:
    kwargs = json.dumps({"low": low, "high": high, "dtype": dtype})
    done = run_main(f"--env_name={NAME}", f"--env_kwargs={kwargs}", *FLAGS, f"--run_dir={tmp_path}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(f"actions: scaled from [-1, 1] to their bounds, [{low}, {high}]") == 1
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["evaluation"]["mean"] > -0.15


@pytest.mark.slow
def test_each_number_has_a_scale_of_its_own(tmp_path: Path) -> None:
    values = kwargs_of([300, -1, 0], [500, 1, 40], hybrid=True)
    summary = train(values.pop("env_name"), **{**QUICK, **values, "run_dir": str(tmp_path)})
    assert summary.evaluation is not None
    assert summary.evaluation.mean > -0.15
    policy = load_policy(summary.checkpoint, NAME)
    goals = np.linspace(-0.8, 0.8, 5, dtype=np.float32)[:, None]
    numbers = np.stack([action["number"] for action in policy.predict(goals)])
    np.testing.assert_allclose((numbers - [300, -1, 0]) / [100, 1, 20] - 1 - goals, 0, atol=0.35)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-3, 3),
        (-0.4, 0.4),
        ([-1, 0, 0], [1, 1, 1]),
        (0, np.inf),
        (7, 7),
        (-3.4028234663852886e38, 3.4028234663852886e38),
    ],
    ids=str,
)
def test_bounds_that_a_normal_fits_and_missing_ones_stay_as_they_are(
    low: Any, high: Any, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    def env() -> Aim:
        return Aim(low, high)

    for name, scale in (("default", {}), ("unscaled", {"scale_actions": False})):
        flags = {**SHORT, "num_workers": 0, "verbose": 1, "run_dir": str(tmp_path / name)}
        train(env, **{**flags, **scale})
    assert metrics(tmp_path / "default") == metrics(tmp_path / "unscaled")
    assert "scaled from" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_policy_of_before_plays_and_is_resumed_as_it_was_trained(
    unscaled: Path, tmp_path: Path
) -> None:
    policy = load_policy(unscaled, NAME)
    for action in (policy.predict(np.zeros(1, np.float32)), policy.make_env().action_space.low):
        np.testing.assert_array_equal(action, [300])
    policy.save(tmp_path / "saved.safetensors")
    again = load_policy(tmp_path / "saved.safetensors", NAME)
    np.testing.assert_array_equal(again.predict(np.zeros(1, np.float32)), [300])
    with pytest.raises(CheckpointError, match=r"begun with scale_actions=False, not True"):
        train(NAME, resume=str(unscaled), scale_actions=True)
    for flag in ("init_from", "teacher"):
        with pytest.raises(ConfigError, match=r"was trained with --scale_actions=False: give the"):
            train(NAME, **{**SHORT, "env_kwargs": json.loads(OTHER), flag: str(unscaled)})
    flags = {"env_kwargs": json.loads(OTHER), "init_from": str(unscaled), "init_parts": "value"}
    train(NAME, **{**SHORT, **flags, "total_steps": 512, "run_dir": str(tmp_path / "fine")})
    train(NAME, resume=str(unscaled), total_steps=4 * 512, verbose=0)
    np.testing.assert_array_equal(
        load_policy(unscaled, NAME).predict(np.zeros(1, np.float32)), [300]
    )


def test_a_run_of_before_is_resumed_by_a_config_where_nothing_is_scaled(tmp_path: Path) -> None:
    config = Config(**{**CARTPOLE, "eval_episodes": 0, "run_dir": str(tmp_path)})
    path = Path(train(config).checkpoint).resolve()
    without_the_flag(path, path)
    more = {"run_dir": None, "resume": str(tmp_path), "total_steps": 2 * config.total_steps}
    assert train(replace(config, **more)).steps == 2 * config.total_steps


def test_demonstrations_are_cloned_in_the_numbers_of_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    def env() -> Aim:
        return Aim(300, 500)

    path = str(tmp_path / "shown.npz")
    record(lambda goal: 400 + 100 * goal, env, episodes=400, path=path)
    flags = {**QUIET, "verbose": 1, "demonstrations": path, "total_steps": 0}
    summary = train(env, **flags, run_dir=str(tmp_path / "run"))
    assert "cloned 400 episodes" in capsys.readouterr().out
    policy = load_policy(summary.checkpoint, env)
    goals = np.linspace(-0.8, 0.8, 5, dtype=np.float32)[:, None]
    actions = 400 + 100 * goals
    np.testing.assert_allclose(policy.predict(goals), actions, atol=10)
    assert (policy.log_probs(goals, actions) > policy.log_probs(goals, actions - 60)).all()


@pytest.mark.slow
@pytest.mark.parametrize("squash", [False, True])
def test_an_exported_policy_scales_too(squash: bool, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    values = {"low": [-4000, 0.001, 0], "high": [4000, 0.002, 255]}
    flags = {**SHORT, "num_workers": 0, "env_kwargs": values, "squash_actions": squash}
    summary = train(NAME, **flags, run_dir=str(tmp_path / "run"))
    path = str(tmp_path / "policy.onnx")
    assert main.main(["export", summary.checkpoint, path, f"--env_name={NAME}"]) == 0
    policy = load_policy(summary.checkpoint, NAME)
    goals = np.linspace(-1, 1, 9, dtype=np.float32)[:, None]
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(None, {session.get_inputs()[0].name: goals})
    distances = np.abs(found - policy.predict(goals)).max(axis=0)
    assert (distances <= [0.04, 1e-7, 3e-3]).all()


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("low", "high", "flags", "said"),
    [
        (300, np.inf, {}, "not in [300, inf], so that exploration changes little: give the action"),
        (300, 500, {"scale_actions": False}, "begin a run with --scale_actions=True"),
        (-2, 2, {"log_std_init": 5}, "lower --entropy_coef or --log_std_init"),
        ([-1, 300], [1, np.inf], {}, "100% of actions of number 2 of 2 are clipped"),
        ([-1, 0, 7], [1, 1, 7], {}, ""),
        (300, 500, {}, ""),
        (300, 500, {"squash_actions": True, "log_std_init": 5}, ""),
    ],
)
def test_the_doctor_speaks_when_nearly_all_actions_are_clipped(
    low: Any, high: Any, flags: dict[str, Any], said: str, tmp_path: Path
) -> None:
    def env() -> Aim:
        return Aim(low, high)

    train(env, **{**SHORT, "num_workers": 0, "run_dir": str(tmp_path), **flags})
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    messages = [x["message"] for x in lines if x["kind"] == "doctor" and "clip" in x["message"]]
    assert len(messages) == bool(said)
    assert said in "".join(messages)


def test_the_doctor_speaks_of_actions_that_run_away(tmp_path: Path) -> None:
    flags = {**QUIET, "num_workers": 0, "entropy_coef": 1.0, "learning_rate": 0.05}
    train(lambda: Aim(-1, 1), **flags, run_dir=str(tmp_path))
    text = (tmp_path / "events.jsonl").read_text()
    assert "% of actions are clipped, as they are not in [-1, 1]" in text


@pytest.mark.slow
def test_check_says_what_is_scaled() -> None:
    done = run_main("check", f"--env_name={NAME}", f"--env_kwargs={OTHER}")
    assert "actions: scaled from [-1, 1] to their bounds, [300, 500]" in done.stdout
