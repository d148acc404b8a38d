"""The check command: problems of environments in plain sentences."""

import re

import gymnasium
import numpy as np
import pytest

import main
from ppo.extras.tools.random_play import is_same, play
from tests.running import run_main


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
    recommended = done.stdout.splitlines()[-1].removeprefix("recommended: ppo train ").split()
    assert recommended[:2] == ["--env_name=CartPole-v1", "--model=mlp"]
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
