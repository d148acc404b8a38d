"""The check command: problems of environments in plain sentences."""

import importlib
import os
import re
import socket
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

import main
from ppo.extras.tools import check
from ppo.extras.tools.check import checker_warnings, roughly
from ppo.extras.tools.random_play import is_same, play
from tests.environments import Camera, Target
from tests.running import ROOT, Call, run_main


def checked(capsys: pytest.CaptureFixture, *arguments: str) -> list[str]:
    """Run the command in this process; return the lines that it prints."""
    assert main.main(["check", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_cartpole_has_no_problems_and_trains_as_recommended(tmp_path) -> None:
    done = run_main("check", "--env_name=CartPole-v1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "actions: Discrete(2)" in done.stdout
    assert re.search(r"a step takes [\d,]+ microseconds, a reset [\d,]+ microseconds", done.stdout)
    assert "runs repeat themselves, and are resumed exactly" in done.stdout
    assert "random actions earn 1 to 1 a step, 1 on average" in done.stdout
    speed = r"worker processes: [\d,]+ steps/s collected, [\d,]+ trained"
    assert len(re.findall(rf"\n32 environments, [1-9][0-9]* {speed}", done.stdout)) == 1
    assert len(re.findall(rf"\n128 environments, [1-9][0-9]* {speed}", done.stdout)) == 1
    assert "warning" not in done.stdout
    last = done.stdout.splitlines()[-1]
    recommended = last.removeprefix("recommended: python main.py train ").split()
    assert recommended[0] == "--env_name=CartPole-v1"
    assert not [flag for flag in recommended if f"change: {flag}, since " not in done.stdout][1:]
    assert run_main(*recommended, "--num_iterations=1", f"--run_dir={tmp_path}").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ('{"blind": true}', "warning: observations are constant"),
        ('{"scale": 1e4}', "warning: rewards are far from 1: leave --normalize_rewards on"),
        ('{"idle": true}', "100% of them ended by a time limit"),
    ],
)
def test_each_problem_has_a_warning(kwargs: str, said: str, capsys: pytest.CaptureFixture) -> None:
    lines = checked(
        capsys, "--env_name=tests.extras.watch.test_doctor:Ill", f"--env_kwargs={kwargs}"
    )
    assert [line for line in lines if said in line]
    assert lines[-1].startswith("recommended: ")
    assert "--env_kwargs=" in lines[-1]


@pytest.mark.slow
def test_environments_that_do_not_repeat_themselves_are_named(
    capsys: pytest.CaptureFixture,
) -> None:
    worn = checked(capsys, "--env_name=tests.extras.resume.test_resume:Worn-v0")
    assert [
        line
        for line in worn
        if line.startswith("warning: only a new instance repeats itself: a resumed run begins new")
    ]
    forgetful = checked(capsys, "--env_name=tests.extras.resume.test_resume:Forgetful-v0")
    assert [
        line
        for line in forgetful
        if line.startswith("warning: the same seed and actions lead elsewhere")
    ]
    assert [
        line
        for line in forgetful
        if line.startswith("warning: no episode ended within 1,000 steps")
    ]


def test_a_record_of_random_play_has_all_that_happened() -> None:
    env = gymnasium.make("CartPole-v1")
    result = play(env, 3)
    assert is_same(result, play(env, 3))
    assert not is_same(result, play(env, 4))
    assert len(result.step_seconds) == len(result.rewards) == 1_000
    assert len(result.reset_seconds) == len(result.episodes) + 1
    assert len(result.observations) == len(result.step_seconds) + len(result.reset_seconds)
    assert all(total == length for total, length, _ in result.episodes)
    np.testing.assert_array_equal(result.observations[0], env.reset(seed=3)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "tests.teams:Relay",
            [
                "form: a team of 3 agents (early, middle, late), a column each",
                "a step of 3 copies of the team takes ",
                "runs repeat themselves; a resumed run begins new episodes",
                "% of them ended by a time limit",
                "truncated episodes end with their own last observation",
                "recommended: ppo train --env_name=tests.teams:Relay",
            ],
        ),
        ("tests.teams:sync", ["form: a batch (MaskedReset)", "a step of 8 environments"]),
    ],
)
def test_a_batch_and_a_team_are_checked(
    name: str, said: list[str], capsys: pytest.CaptureFixture
) -> None:
    lines = checked(capsys, f"--env_name={name}")
    for text in said:
        assert sum(text in line for line in lines) == 1, (text, lines)
    assert lines[0].startswith("observations: Box(")
    assert sum(line.startswith("actions: ") for line in lines) == 1
    assert sum("steps/s collected" in line for line in lines) == 2


def test_an_unknown_environment_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture) -> None:
    assert main.main(["check", "--env_name=CartPol-v1"]) == 2
    assert "did you mean CartPole-v1" in capsys.readouterr().err


@pytest.mark.slow
def test_forbidden_actions_are_not_played(capsys: pytest.CaptureFixture) -> None:
    lines = checked(capsys, "tests.environments:Masked-v0")
    assert [line for line in lines if line.startswith("random actions earn 0 to 1 a step")]


class SlowCamera(Camera):
    """A camera whose step takes a tenth of a second, beside numbers that are large."""

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        time.sleep(0.1)
        observation, reward, *ends, info = super().step(action)
        return observation, 500 * reward, *ends, info


def test_a_slow_camera_is_checked_within_the_limit(capsys: pytest.CaptureFixture) -> None:
    name = "tests.extras.tools.test_check:SlowCamera"
    lines = checked(capsys, name, "--time_limit=6s", "--num_envs=8", "--step_timeout=0.2")
    assert lines[:4] == [
        "observations distance: Box(-inf, inf, (2,), float64)",
        "observations picture: Box(0, 255, (48, 40, 3), uint8)",
        "observations switch: Discrete(2)",
        "actions: Discrete(2)",
    ]
    assert "picture: (48, 40, 3) in gray 84 x 84, 4 stacked" in lines[4]
    assert "network: cnn" in lines
    assert (
        "not checked for want of time: whether runs repeat themselves (see --time_limit)" in lines
    )
    assert "warning: observations of distance are as large as 5e+03: leave" in " ".join(lines)
    assert "change: --normalize_rewards=True, since rewards are as large as 500" in lines
    assert re.search(r"change: --step_timeout=\d+, since a step has taken", " ".join(lines))
    assert lines[-1].startswith("recommended: ppo train ")
    assert "--normalize_rewards=True" in lines[-1]
    assert "--step_timeout=" in lines[-1]
    assert not re.search("--model|--time_limit", lines[-1])
    unmeasured = "32 environments, .* not measured for want of time: give a greater --time_limit"
    assert [line for line in lines if re.match(unmeasured, line)]


def test_a_check_shows_its_progress(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "SECONDS_BETWEEN_LINES", 0)
    monkeypatch.setattr(check, "measure", lambda *_: None)
    lines = checked(capsys, "tests.extras.tools.test_check:SlowCamera", "--time_limit=1s")
    assert any(re.fullmatch("random actions: [1-9] steps", line) for line in lines)


class Shares(gymnasium.Env):
    """Shows the same array again and again, or fails in what only gymnasium's checker does."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fails: bool = False) -> None:
        self.shown = np.zeros(1, np.float32)
        self.fails = fails

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        if self.fails and options is not None:
            raise KeyError("options")
        return self.shown, {}

    def step(self, action: int) -> Any:
        return self.shown, 1.0, True, False, {}


class Listens(Shares):
    """Has a port of its own."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, port: int) -> None:
        super().__init__()
        self.socket = socket.create_server(("127.0.0.1", port))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return super().reset(seed=seed)[0].copy(), {}

    def step(self, action: int) -> Any:
        return self.shown.copy(), 1.0, True, False, {}

    def close(self) -> None:
        self.socket.close()


def test_no_other_instance_is_made_on_the_port_of_an_environment() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = gymnasium.make(EnvSpec("Listens", Listens), port=port)
    assert checker_warnings(env.unwrapped) == []
    env.close()


def test_what_gymnasiums_checker_finds_is_a_sentence() -> None:
    (found,) = checker_warnings(Shares())
    assert re.match("The observations returned by .* share an object, therefore, ", found)
    (found,) = checker_warnings(Shares(fails=True))
    path = os.path.relpath(__file__)
    assert re.fullmatch(
        rf"a call of the environment fails, in line \d+ of {path}: 'options'", found
    )


def test_the_readmes_environment_has_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(import .*?)```", readme, re.S)
    (tmp_path / "readmes_env.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert checker_warnings(importlib.import_module("readmes_env").MyEnv()) == []


class Flaky(Target):
    """Fails in its fifth step."""

    def step(self, action: Any) -> Any:
        self.count = getattr(self, "count", 0) + 1
        if self.count == 5:
            raise RuntimeError("the simulator has lost its connection")
        return super().step(action)


def test_an_environment_that_fails_is_answered_with_a_wrapper(call: Call) -> None:
    code, _, error = call("check", f"{__name__}:Flaky", "--time_limit=5s")
    assert code == 1
    last = error.splitlines()[-1]
    assert "Flaky (if it does so now and then only, end the episode there: --wrapper=" in last
    assert last.endswith("raised RuntimeError: the simulator has lost its connection")


def test_a_guess_of_a_duration_has_two_digits() -> None:
    seconds = [7, 118, 150, 5_000, 82_396, 400_000]
    said = ["7 seconds", "118 seconds", "2.5 minutes", "83 minutes", "23 hours", "4.6 days"]
    assert [*map(roughly, seconds)] == said
