"""Searches for flags, by main.py in real processes."""

import dataclasses
import json
import re
import shlex
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.extras.tools.tune.command import Search, Tune, TuneFlags
from ppo.extras.tools.tune.study import write_plots
from tests.running import ROOT, Call, command, run_main, spaces_of

QUICK = [
    "--preset=none",
    "--num_envs=4",
    "--num_steps=32",
    "--total_steps=256",
    "--eval_episodes=1",
    "--learning_rate=0.01",
]
SPACE = "--space=gamma=range(0.9,1) num_epochs=1|2"


def tune(folder: Path, *flags: str) -> list[str]:
    """Return a command line; the last of equal flags counts."""
    return command("tune", "CartPole-v1", *QUICK, SPACE, f"--run_dir={folder}", *flags)


def load(folder: Path) -> optuna.Study:
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "study.log"))
    return optuna.load_study(
        study_name=folder.name, storage=optuna.storages.JournalStorage(backend)
    )


def wait_until(is_so, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)


@pytest.mark.slow
def test_a_study_finds_flags_and_writes_a_preset_and_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    preset = tmp_path / "best.json"
    done = run_main(*tune(folder, "--trials=3", f"--write_preset={preset}")[2:])
    assert done.returncode == 0, done.stderr
    study = load(folder)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3
    best = study.best_trial
    assert f"best: trial {best.number}, return " in done.stdout
    flags = best.user_attrs["flags"]
    assert f"--gamma={flags['gamma']} --num_epochs={flags['num_epochs']}" in done.stdout
    values = json.loads(preset.read_text())
    assert values["gamma"] == float(flags["gamma"])
    assert values["num_epochs"] == int(flags["num_epochs"])
    assert values["num_envs"] == 4
    assert not {"env_name", "seed", "run_dir"} & values.keys()
    for trial in study.trials:
        summary = json.loads((folder / f"trial-{trial.number:04}/s0/summary.json").read_text())
        assert trial.value == summary["evaluation"]["mean"]
    page = (folder / "study.html").read_text()
    assert "What matters" in page
    assert page.count('<img src="data:image/png;base64,') == 6
    assert "cannot be drawn" not in page
    assert "Warning" not in done.stderr
    short = ["--num_iterations=1", f"--run_dir={tmp_path / 'run'}", "--logger=none"]
    done = run_main("--env_name=CartPole-v1", f"--preset={preset}", *short)
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["gamma"], config["num_steps"]) == (values["gamma"], 32)


def test_a_plot_that_cannot_be_drawn_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = optuna.create_study()
    study.optimize(lambda trial: trial.suggest_float("<gamma>", 0, 1), 1)
    write_plots(study, tmp_path / "one.html")
    assert (tmp_path / "one.html").read_text().count("<img ") == 5

    def fail(*_: object, **__: object) -> None:
        raise ValueError("<nothing> to compare")

    monkeypatch.setattr(optuna.visualization.matplotlib, "plot_param_importances", fail)
    write_plots(study, tmp_path / "study.html")
    page = (tmp_path / "study.html").read_text()
    assert page.count("<img ") == 4
    assert "<p>It cannot be drawn: &lt;nothing&gt; to compare</p>" in page
    assert "<figcaption>Scores by &lt;gamma&gt;</figcaption>" in page


def is_amid(folder: Path, enough: int) -> bool:
    """Return whether so many trials have ended, and one is being played."""
    if not (folder / "study.log").exists():
        return False
    finished = [trial.state.is_finished() for trial in load(folder).trials]
    return sum(finished) >= enough and not all(finished)


@pytest.mark.slow
def test_a_study_that_is_killed_twice_ends_with_all_its_trials(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    line = tune(folder, "--trials=30", "--total_steps=8192")
    for enough in (5, 15):
        process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.DEVNULL)
        wait_until(partial(is_amid, folder, enough), process)
        process.kill()
        process.wait()
        assert is_amid(folder, enough)
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    check_all_trials_are_there(folder, 30, steps=8192)


def check_all_trials_are_there(folder: Path, count: int, steps: int = 256) -> None:
    """None is lost or double, and each has one run of all its steps, by its own flags."""
    trials = load(folder).trials
    assert [trial.number for trial in trials] == [*range(count)]
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert len({*folder.glob("trial-*")}) == count
    for trial in trials:
        run = folder / f"trial-{trial.number:04}" / "s0"
        config = json.loads((run / "config.json").read_text())
        assert config["gamma"] == float(trial.user_attrs["flags"]["gamma"])
        if trial.state == TrialState.COMPLETE:
            assert json.loads((run / "summary.json").read_text())["steps"] == steps


@pytest.mark.slow
def test_a_signal_reaches_the_runs_and_the_study_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    line = tune(folder, "--trials=2", "--jobs=1")
    slow = [*line, "--total_steps=100000000"]
    process = subprocess.Popen(slow, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_until((folder / "trial-0000" / "s0" / "metrics.csv").exists, process)
    process.send_signal(signal.SIGTERM)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert "SIGTERM stopped the runs of the study: the same command continues it" in errors
    (trial,) = load(folder).trials
    assert trial.state == TrialState.RUNNING
    assert [*folder.glob("trial-0000/s0/checkpoints/0*")]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "was begun with other flags: give those, or begin another by --name" in done.stderr


@pytest.mark.slow
def test_no_trial_draws_more_than_the_budget_and_the_best_command_can_be_pasted(
    tmp_path: Path,
) -> None:
    flags = ["--preset=none", "--total_steps=1024", "--eval_episodes=1", "--trials=4"]
    own = ["--env_kwargs={}", f"--run_dir={tmp_path / 'study'}", "--num_epochs=1"]
    done = run_main("tune", "CartPole-v1", *flags, *own)
    assert done.returncode == 0, done.stderr
    states = {trial.state for trial in load(tmp_path / "study").trials}
    assert TrialState.FAIL not in states
    (line,) = re.findall("^python main.py (.*)", done.stdout, re.M)
    again = ["--num_iterations=1", f"--run_dir={tmp_path / 'run'}", "--logger=none"]
    assert run_main(*shlex.split(line), *again).returncode == 0


def make_search(folder: Path, config: Config | None = None, **own) -> Search:
    config = config or Config(run_dir=str(folder), preset="none")
    spaces = spaces_of("CartPole-v1")
    return Search(TuneFlags(**{"space": "gamma=0.9|1", **own}), {}, config, spaces)


def test_what_counts_is_what_the_score_says(tmp_path: Path) -> None:
    summary = {
        "steps": 1000,
        "seconds": 3.5,
        "stopped": None,
        "mean_return": 7.0,
        "evaluation": {"mean": 9.0},
    }
    search = make_search(tmp_path / "a")
    assert search._score(summary, Config()) == 9
    assert search._score({**summary, "evaluation": {"mean": None}}, Config()) == 7
    with pytest.raises(ConfigError, match="no episode has ended"):
        search._score({**summary, "evaluation": {"mean": None}, "mean_return": None}, Config())
    config = Config(stop_when="env/solved>0.9", total_steps=5000)
    search = make_search(tmp_path / "b", score="steps")
    assert search._score(summary, config) == 10_000  # not reached, however early it ended
    assert search._score({**summary, "stopped": "env/solved>0.9: it is 1"}, config) == 1000
    assert search._score({**summary, "stopped": "seconds>=3: it is 3.1"}, config) == 10_000
    config = Config(stop_when="solved", max_time="1m")
    search = make_search(tmp_path / "c", score="seconds")
    assert search._score(summary, config) == 120
    reached = {**summary, "stopped": "solved>=475: it is 480"}
    assert search._score(reached, config) == 3.5
    gave_up = {**summary, "stopped": "episode_return_mean has not risen above 9 for 5 iterations"}
    assert search._score(gave_up, config) == 120


def test_a_trial_that_learns_worse_than_the_median_is_ended(tmp_path: Path) -> None:
    search = make_search(tmp_path)
    run = tmp_path / "s1"
    run.mkdir()
    (run / "config.json").write_text('{"env_name": "CartPole-v1"}')

    def report(trial: optuna.Trial, *returns: object) -> bool:
        rows = [f"{i},{i * 100_000},{i},{x}" for i, x in enumerate(returns, 1) if x is not None]
        table = ["iteration,step,seconds,episode_return_mean", *rows, ""]
        (run / "metrics.csv").write_text("\n".join(table))
        search._report(trial, run, 1_000_000)
        return trial.should_prune()

    for level in range(6):
        trial = search.study.ask()
        search._report(trial, tmp_path / "s2", 1_000_000)  # which has not begun
        assert not report(trial, "", level + 10, level + 10)  # no episode ends in the first tenth
        search.study.tell(trial, float(level))
    assert search.study.trials[3].intermediate_values == {12: 13, 13: 13}  # of the second seed
    trial = search.study.ask()
    assert report(trial, "", 1)
    trial = search.study.ask()
    assert not report(trial, "", 20)
    assert report(trial, "", 20, "", 20, 1) is False  # after which no other has reported


def test_a_process_takes_over_only_what_nobody_plays(tmp_path: Path) -> None:
    study, other = make_search(tmp_path).shared, make_search(tmp_path).shared
    assert number_of(study.begin_trial(4)) == 0
    assert number_of(other.begin_trial(4)) == 1
    study.locks.pop(0).close()  # as at the end of its process
    assert number_of(other.begin_trial(4)) == 0
    study.study.ask()  # and killed before it could lock anything
    assert number_of(other.begin_trial(4)) == 2
    (tmp_path / "trial-0003").mkdir()  # of a study whose file was removed
    with pytest.raises(ConfigError, match="trial-0003 is of another study"):
        other.begin_trial(4)
    assert other.begin_trial(4) is None


def number_of(trial: optuna.Trial | None) -> int:
    assert trial is not None
    return trial.number


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--score=steps", "--score=steps: give --stop_when as well"),
        ("--score=seconds --stop_when=solved", "--score=seconds: give --max_time as well"),
        ("--budget=soon", "--budget=soon: expected number and unit"),
        ("--write_preset=best.txt", "--write_preset=best.txt: give a name that ends with .json"),
        ("--storage=nowhere://x", "--storage=nowhere://x ("),
        ("--resume=auto --run_dir=runs/x", "--resume: leave it out, the same command continues"),
    ],
)
def test_wrong_flags_are_refused(
    flags: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call("tune", "CartPole-v1", *flags.split())
    assert code == 2
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1


def test_every_flag_of_tune_has_a_plain_sentence() -> None:
    for option in dataclasses.fields(Tune):
        assert re.fullmatch(r"[A-Z].*\.", option.metadata["help"]), option.name
