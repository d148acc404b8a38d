"""Environments given as classes and functions, from Python and from files."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import pytest
from gymnasium import spaces

from ppo.config.config import Config
from ppo.envs.env_factories import EnvObject, as_env_name, unpickle
from ppo.envs.errors import EnvironmentUnavailable
from ppo.errors import CheckpointError, ConfigError
from ppo.policy.load import load_policy
from ppo.run import checkpoint
from ppo.trainer import train
from tests.running import ROOT, TINY, Call, make_env

VALUES = {name: value for name, value in TINY.items() if name != "env_name"}


class Plain(gymnasium.Wrapper):
    """Change nothing."""


class Arm(gymnasium.Env):
    """Note which arms are made; episodes of four steps earn the port's last digit each."""

    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Box(-1, 1, (1,))
    made: ClassVar[list[Any]] = []

    def __init__(self, index: int = -1, port: Any = None) -> None:
        self.index = index
        self.port = index if port is None else port
        Arm.made.append(self.port)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = float(self.port % 10)
        return self.observation_space.sample(), reward, False, self.steps == 4, {}


class Wide(Arm):
    observation_space = spaces.Box(0, 1, (3,))


class Breaking(Arm):
    def step(self, action: Any) -> Any:
        if self.steps == 2:
            raise RuntimeError("an arm broke")
        return super().step(action)


@pytest.fixture(autouse=True)
def _no_arms() -> None:
    Arm.made.clear()


def config(folder: Path, **values: Any) -> Config:
    return Config(**{**VALUES, "total_steps": 16, "run_dir": str(folder), **values})


def test_an_object_is_a_label_that_carries_it() -> None:
    assert as_env_name("CartPole-v1") == "CartPole-v1"
    label = as_env_name(lambda index: Arm(index))
    assert isinstance(label, EnvObject)
    assert label == "<lambda>"
    kept = Config(env_name=label).env_name
    assert isinstance(kept, EnvObject)
    assert unpickle(kept.pickled)(index=3).index == 3
    written = json.dumps(Config(env_name=as_env_name(Arm)).__getstate__())
    assert json.loads(written)["env_name"] == "<Arm>"


@pytest.mark.parametrize(
    "env",
    [Arm, lambda index: Arm(index), "tests.envs.test_env_factories:Arm"],
    ids=["class", "lambda", "id"],
)
def test_an_environment_is_given_its_number_in_the_run(env: Any, tmp_path: Path) -> None:
    summary = train(env, config(tmp_path, eval_episodes=2))
    assert Arm.made == [0, *(0, 1), *(2, 3)]  # first look, training, evaluation
    assert summary.evaluation.returns == [8, 12]
    policy = load_policy(summary.checkpoint, env)
    assert policy.make_env().unwrapped.index == 2


def test_tasks_are_dealt_over_the_environments(tmp_path: Path) -> None:
    tasks = [{"port": "{10+10*index}"}, {"port": 1}, {"port": 2}]
    values = {"num_envs": 4, "total_steps": 32, "eval_episodes": 4}
    summary = train(Arm, config(tmp_path, env_kwargs=tasks, **values))
    assert Arm.made == [*(10, 1, 2), *(10, 1, 2, 40), *(130, 1, 2, 160)]
    assert summary.evaluation.returns == [0, 4, 8, 0]


def test_another_environment_may_be_evaluated(tmp_path: Path) -> None:
    summary = train(Arm, config(tmp_path, eval_episodes=1), eval_env=lambda: Arm(port=5))
    assert Arm.made == [*(0, 5), *(0, 1), 5]
    assert summary.evaluation.mean == 20
    assert load_policy(summary.checkpoint, Arm).evaluate(1).mean == 8  # as in training
    with pytest.raises(
        EnvironmentUnavailable, match="--env_name=<Arm> has other spaces or masks by --eval_env"
    ):
        train(Arm, config(tmp_path / "other"), eval_env=Wide)
    train(Arm, config(tmp_path / "broken", eval_episodes=1), eval_env=Breaking)
    assert "environment <Breaking> in eval" in (tmp_path / "broken" / "events.jsonl").read_text()


def test_a_class_in_a_config_is_answered_with_how_to_write_it() -> None:
    with pytest.raises(ConfigError, match=r"Arm'>: give .*, or write train\(MyEnv, Config"):
        Config(env_name=Arm)  # type: ignore[arg-type]


def test_what_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"environment <lambda> cannot be sent .*'_thread.lock'"):
        as_env_name(lambda: lock)


class ParallelEnv:
    """As PettingZoo's: no gymnasium.Env."""

    def reset(self, seed: int | None = None) -> None:
        """Return nothing."""


class Batch(Arm):
    """As EnvPool's: a gymnasium.Env that is many."""

    num_envs = 4


@pytest.mark.parametrize(
    "env",
    [Arm(), gymnasium.make_vec("CartPole-v1", 2), ParallelEnv(), None, 3],
    ids=["environment", "vector", "parallel", "none", "number"],
)
def test_what_is_made_already_is_refused(env: Any) -> None:
    with pytest.raises(ConfigError, match="give an id, a class, or a function that makes one"):
        train(env)


@pytest.mark.parametrize("env", [lambda: gymnasium.make_vec("CartPole-v1", 2), ParallelEnv, Batch])
def test_what_makes_more_or_less_than_one_environment_is_refused(env: Any) -> None:
    with pytest.raises(EnvironmentUnavailable, match="inherit from the gymnasium"):
        make_env(as_env_name(env))


def test_an_object_must_be_given_again(tmp_path: Path) -> None:
    saved = train(Arm, config(tmp_path)).checkpoint
    with pytest.raises(CheckpointError, match=r"is of the class or function <Arm>: give it again"):
        load_policy(saved).make_env()
    made = load_policy(saved, "tests.envs.test_env_factories:Arm").make_env()
    assert made.action_space == Arm.action_space
    with pytest.raises(EnvironmentUnavailable, match=r"<Wide> observes .* was trained with"):
        load_policy(saved, Wide).evaluate()


def test_a_script_resumes_its_run_with_the_settings_that_it_has_been_given_since(
    tmp_path: Path,
) -> None:
    flags = {**VALUES, "run_dir": str(tmp_path), "resume": "auto"}
    train(Arm, **{**flags, "total_steps": 16})
    train(Arm, **{**flags, "total_steps": 32, "gamma": 0.5})
    del flags["num_steps"]
    saved = checkpoint.load(Path(train(Arm, **{**flags, "total_steps": 64}).checkpoint))
    assert saved["config"]["gamma"] == 0.5
    assert saved["config"]["num_steps"] == VALUES["num_steps"]


MY_ENV = """
    from tests.envs.test_env_factories import Arm

    def make(index, port=None):
        return Arm(index, port)
"""


def test_a_file_is_an_argument_of_train(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_env.py").write_text(textwrap.dedent(MY_ENV))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    env = "my_env.py:make"
    flags = [f"--{name}={value}" for name, value in {**VALUES, "total_steps": 16}.items()]
    assert call("train", env, *flags, "--run_dir=run") == (0, "", "")
    assert Arm.made == [0, 0, 1]  # one is looked at, and two are trained on
    run = json.loads(Path("run/config.json").read_text())
    assert run["env_name"] == env
    code, _, errors = call("train", env + "s", *flags)
    assert (code, errors.count("\n")) == (2, 1)
    assert "did you mean make" in errors
    code, _, errors = call("evaluate", "run", "--episodes=2", '--env_kwargs={"port": 7}')
    assert code == 3
    trusted = f"--env_name={env}"
    code, output, _ = call("evaluate", "run", trusted, "--episodes=2", '--env_kwargs={"port": 7}')
    assert code == 0
    assert "return 28.0" in output
    (entry,) = json.loads(Path("run/evaluation.json").read_text())
    assert entry["env_kwargs"] == {"port": 7}


SCRIPT = """
    import os, signal, sys
    import gymnasium
    import numpy as np
    from gymnasium import spaces
    from ppo import Config, load_policy, train

    class Walk(gymnasium.Env):
        observation_space = spaces.Box(-9, 9, (2,))
        action_space = spaces.Box(-1, 1, (1,))

        def __init__(self, start):
            self.start = start

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return self.see(), {}

        def see(self):
            return (self.start + self.np_random.random(2)).astype(np.float32)

        def step(self, action):
            self.steps += 1
            return self.see(), float(action[0]), False, self.steps == 30, {}

    def when_killed(remaining):
        if remaining < 0.4 and len(sys.argv) > 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1e-3

    config = Config(num_envs=4, num_steps=16, total_steps=640, num_workers=2, report=False,
                    verbose=0, eval_episodes=2, checkpoint_every=2, learning_rate=when_killed,
                    **{sys.argv[1]: sys.argv[2]})
    print(train(lambda index: Walk(index), config).evaluation)
"""


@pytest.mark.slow
def test_a_script_without_guard_trains_is_killed_and_resumes_exactly(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))

    def run(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )

    whole = run("-c", textwrap.dedent(SCRIPT), "run_dir", "whole")  # as in a notebook
    assert (whole.returncode, whole.stderr) == (0, "")
    assert run("script.py", "run_dir", "part", "killed").returncode == -signal.SIGKILL
    resumed = run("script.py", "resume", "part")
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout == whole.stdout != ""
    states = [
        (tmp_path / name / "checkpoints" / "last.safetensors").resolve().read_bytes()
        for name in ("whole", "part")
    ]
    assert states[0] == states[1]
