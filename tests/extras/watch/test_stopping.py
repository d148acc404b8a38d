"""Conditions end a run when they hold, and the best state is the one with the greatest metric."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.extras.watch.stopping import KeepBest, StopWhen, make_stopping
from tests.callbacks.test_callback import brief
from tests.running import BRIEF, metrics, run_main


class Run(SimpleNamespace):
    """A run of given metrics that remembers what it was told to do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(iteration=0, is_best=False, config=Config(), told=[], **options)

    def at(self, episodes: int = 100, **metrics: Any) -> "Run":
        self.iteration += 1
        self.is_best = False
        named = {name.replace("__", "/"): value for name, value in metrics.items()}
        self.metrics = {"episodes": episodes, "episode_return_mean": 0.0, **named}
        return self

    def stop(self, reason: str) -> None:
        self.told.append(reason)

    def save(self) -> None:
        pass


@pytest.mark.parametrize(
    ("condition", "stopping", "going_on"),
    [
        ("env/x>0.5", 0.6, 0.5),
        ("env/x >= 0.5", 0.5, 0.4),
        ("env/x<=5", 5, 6),
    ],
)
def test_a_condition_ends_the_run(condition: str, stopping: float, going_on: float) -> None:
    run = Run()
    callback = StopWhen("stop_when", Config(stop_when=condition).stop_when or "")
    callback.on_iteration(run.at(env__x=going_on))
    callback.on_iteration(run.at(env__x=None))
    assert run.told == []
    callback.on_iteration(run.at(env__x=stopping))
    assert run.told == [f"{condition}: it is {stopping:.4g}"]


def test_an_unknown_metric_is_named_with_a_near_one() -> None:
    wrong = StopWhen("stop_when", "evalution_return_mean>1")
    with pytest.raises(ConfigError, match=r"did you mean evaluation_return_mean\?"):
        wrong.on_iteration(Run().at(0, evaluation_return_mean=None))
    of_env = StopWhen("stop_when", "env/sucess_rate>0.9")
    of_env.on_iteration(Run().at(99))  # an episode may report it yet
    with pytest.raises(ConfigError, match=r"--stop_when.*did you mean env/success_rate\?"):
        of_env.on_iteration(Run().at(100, env__success_rate=0.0))


def test_the_greatest_value_is_the_best() -> None:
    keep = KeepBest()
    run = Run()
    run.config = Config(eval_every=1)
    keep.on_start(run)
    found = []
    for mean in (1.0, None, 3.0, 2.0, 4.0):
        keep.on_iteration(run.at(evaluation_return_mean=mean))
        found.append(run.is_best)
    assert found == [True, False, True, False, True]
    again = KeepBest()
    again.load_state_dict(keep.state_dict())
    again.on_start(run)
    again.on_iteration(run.at(evaluation_return_mean=3.5))
    assert not run.is_best
    other = KeepBest()
    other.load_state_dict(keep.state_dict())
    run.config = Config(best_by="env/x", patience=1)
    other.on_start(run)
    assert run.told == []  # the best of another metric says nothing
    other.on_iteration(run.at(env__x=0.5))
    assert run.is_best


def test_patience_counts_iterations_since_the_best() -> None:
    run = Run()
    run.config = Config(best_by="env/x", patience=3)
    keep = KeepBest()
    keep.on_start(run)
    for x in (1.0, 2.0, 2.0, 1.0):
        keep.on_iteration(run.at(env__x=x))
    assert run.told == []
    keep.on_iteration(run.at(env__x=2.0))
    assert run.told == ["env/x has not risen above 2 for 3 iterations"]
    with pytest.raises(ConfigError, match="--patience=3: give --best_by or --eval_every"):
        Config(patience=3)


def solved_run(*means: float, spread: float = 10.0) -> tuple[Run, StopWhen, list[int]]:
    """Return a run whose evaluations have these means, its condition, and what it evaluates: the
    returns of training deviate by spread from their mean, 190."""
    evaluations = iter(means)
    asked: list[int] = []

    def evaluate(episodes: int) -> SimpleNamespace:
        asked.append(episodes)
        return SimpleNamespace(mean=next(evaluations))

    run = Run(evaluate=evaluate, returns=[190 - spread, 190 + spread] * 50)
    (_, solved) = make_stopping(Config(stop_when="solved"), 200.0)
    assert isinstance(solved, StopWhen)
    return run, solved, asked


def test_solved_is_proved_by_an_evaluation_after_a_shorter_one() -> None:
    run, solved, asked = solved_run(199.0, 201.0, 150.0, 201.0, 205.0)
    for episodes in (100, 129):
        solved.on_iteration(run.at(episodes))  # too early for another
    assert asked == [10]
    solved.on_iteration(run.at(130))  # the proof fails
    solved.on_iteration(run.at(229))
    assert (asked, run.told) == ([10, 10, 100], [])
    again = StopWhen("stop_when", "solved>=200")
    again.load_state_dict(solved.state_dict())
    again.on_iteration(run.at(229))
    assert len(asked) == 3
    again.on_iteration(run.at(230))
    assert (asked[3:], run.told) == ([10, 100], ["solved>=200: it is 205"])


def test_times_have_units() -> None:
    for text, seconds in (("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)):
        *_, timer = make_stopping(Config(max_time=text), None)
        run = Run()
        took = {"seconds_collecting": 20.0, "seconds_learning": 5.0}
        timer.on_iteration(run.at(seconds=seconds - 1, **took))
        assert run.told == []
        timer.on_iteration(run.at(seconds=seconds + 24, **took))
        (said,) = run.told
        assert said.endswith(f"it is {seconds + 24:.4g}, at the end of an iteration of 25 s")
    for wrong in ("2", "h", "2 weeks", "-1h"):
        with pytest.raises(ConfigError, match=r"--max_time=.*like 90s, 30m, 2h or 1d"):
            Config(max_time=wrong)


@pytest.mark.slow
def test_the_same_command_again_trains_no_further_and_another_condition_does(
    tmp_path: Path,
) -> None:
    flags = (*BRIEF, f"--run_dir={tmp_path}", "--resume=auto")
    for condition, count in (("iteration>=3", 3), ("iteration>=3", 3), ("iteration>=4", 4)):
        done = run_main(*flags, f"--stop_when={condition}")
        assert done.returncode == 0, done.stderr
        assert f"stopped: {condition}" in done.stdout
        assert len(metrics(tmp_path)) == count


def test_a_resumed_run_whose_patience_has_ended_stops_at_once() -> None:
    run = Run()
    callback = KeepBest()
    callback.load_state_dict({"best": 1.0, "best_iteration": 2, "name": "env/x"})
    for patience, told in ((4, 0), (3, 1)):
        run.config = Config(best_by="env/x", patience=patience)
        run.iteration = 5
        callback.on_start(run)
        assert len(run.told) == told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "code", "message"),
    [
        ("--stop_when=env/success_rate>0.0", 0, "env/success_rate>0.0: it is"),
        ("--best_by=env/succes", 2, "--best_by: there is no metric env/succes in this run"),
        ("--stop_when=solved", 2, "names no reward_threshold"),
        ("--max_time=0s", 0, "seconds>=0"),
    ],
)
def test_conditions_end_a_run(tmp_path: Path, flag: str, code: int, message: str) -> None:
    folder = tmp_path / "run"
    done = brief(flag, f"--run_dir={folder}")
    assert done.returncode == code, done.stderr
    assert message in done.stdout + done.stderr
    if code == 0:
        assert message in json.loads((folder / "summary.json").read_text())["stopped"]


@pytest.mark.slow
def test_solved_is_proved_by_an_evaluation(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = run_main(
        "--env_name=CartPole-v1",
        "--stop_when=solved",
        "--num_workers=0",
        f"--run_dir={folder}",
        "--seed=1",
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stopped"].startswith("solved>=475.0: it is")
    assert summary["evaluation"]["mean"] >= 475


def test_a_mean_without_a_value_is_no_best_and_ends_nothing() -> None:
    """As long as an environment is in its first episode."""
    run, solved, asked = solved_run(199.0)
    keep = KeepBest()
    keep.name = "episode_return_mean"
    for callback in (solved, keep, StopWhen("stop_when", "episode_return_mean<500")):
        callback.on_iteration(run.at(200, episode_return_mean=None))
    assert (asked, run.told, run.is_best) == ([], [], False)


def test_means_of_fewer_than_100_episodes_do_not_count() -> None:
    run = Run()
    for name in ("env/x", "episode_return_mean"):
        StopWhen("stop_when", f"{name}>0.5").on_iteration(
            run.at(99, env__x=1.0, episode_return_mean=1.0)
        )
    assert run.told == []
    StopWhen("stop_when", "evaluation_return_mean>0.5").on_iteration(
        run.at(99, evaluation_return_mean=1.0)
    )
    assert len(run.told) == 1


def test_conditions_are_checked() -> None:
    for wrong in ("x>", "x=3", ">3", "solved>3x"):
        with pytest.raises(ConfigError, match="--stop_when="):
            Config(stop_when=wrong)
