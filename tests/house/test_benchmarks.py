"""Benchmarks start, measure what they say on tiny inputs, and give both trainers the same work."""

import json
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from benchmarks import all as all_benchmarks
from benchmarks import commits, harness, latency, learning, solve, throughput, value_norm
from benchmarks.parts import limits, zoo
from benchmarks.parts.workloads import WORKLOADS, run_cleanrl, run_ours, sb3_envs
from ppo.config.config import Config
from ppo.config.flags import parse_flags
from ppo.config.settings import settings_of
from ppo.models import make_model

FOLDER = harness.ROOT / "benchmarks"
NAMES = [
    ".".join(path.relative_to(FOLDER).with_suffix("").parts)
    for path in sorted(FOLDER.rglob("*.py"))
    if "def main()" in path.read_text()
]
per_workload = pytest.mark.parametrize("name", WORKLOADS)


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    return tmp_path


def config_of(env_name: str, flags: str) -> Config:
    return Config(**parse_flags(shlex.split(flags), Config), env_name=env_name)


def is_table(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return len(lines) >= 3 and len({line.count(" | ") for line in lines}) == 1


def test_each_says_what_it_measures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for name in NAMES:
        monkeypatch.setattr(sys, "argv", [f"benchmarks/{name}.py", "--help"])
        with pytest.raises(SystemExit, match=r"^0$"):
            import_module(f"benchmarks.{name}").main()
        assert f"usage: python -m benchmarks.{name}" in capsys.readouterr().out


def test_commands_of_all_benchmarks_are_there() -> None:
    for command in all_benchmarks.COMMANDS:
        name, *flags = shlex.split(command)
        about = str(import_module(f"benchmarks.{name}").__doc__)
        assert all(flag.partition("=")[0] in about for flag in flags), command


@per_workload
def test_the_settings_of_both_trainers_mean_the_same(name: str) -> None:
    workload = WORKLOADS[name]
    ours = config_of(workload.env_name, workload.own_flags())
    theirs = workload.sb3_settings
    assert ours.num_envs == workload.num_envs
    assert ours.num_steps == theirs["n_steps"]
    assert ours.rollout_size == ours.num_minibatches * theirs["batch_size"]
    assert ours.normalize_observations == ours.normalize_rewards == workload.normalizes
    assert ours.value_coef == 2 * theirs["vf_coef"]  # our loss has a factor 1/2
    same = {
        "num_epochs": "n_epochs",
        "learning_rate": "learning_rate",
        "clip_coef": "clip_range",
        "clip_value_coef": "clip_range_vf",
        "entropy_coef": "ent_coef",
        "gamma": "gamma",
        "gae_lambda": "gae_lambda",
        "max_grad_norm": "max_grad_norm",
    }
    for flag, setting in same.items():
        assert getattr(ours, flag) == theirs[setting], flag
    for is_quick in (False, True):
        assert workload.steps_of(is_quick=is_quick) >= 3 * ours.rollout_size
        assert workload.steps_of(is_quick=is_quick) % ours.rollout_size == 0


@pytest.mark.slow
@per_workload
def test_the_networks_of_both_trainers_are_of_the_same_size(name: str) -> None:
    recurrent = pytest.importorskip("sb3_contrib").RecurrentPPO
    feedforward = pytest.importorskip("stable_baselines3").PPO
    workload = WORKLOADS[name]
    settings = settings_of(config_of(workload.env_name, workload.own_flags()))
    config, found = settings.config, settings.spaces
    ours = make_model(config, found.observations, found.actions)
    settings = {**workload.sb3_settings, "n_steps": 2, "batch_size": 2}
    algorithm = recurrent if name == "memory" else feedforward
    theirs = algorithm(env=sb3_envs(workload, False, 1), **settings).policy
    if name == "memory":
        assert lstm_sizes(ours) == lstm_sizes(theirs) == [128]
    else:
        assert shapes(ours) == shapes(theirs)


def shapes(model: Any) -> list[int]:
    """The sizes of weights; a convolution's are stored in another order here and there."""
    return sorted(weight.numel() for weight in model.parameters() if weight.ndim > 1)


def lstm_sizes(model: Any) -> list[int]:
    return [part.hidden_size for part in model.modules() if type(part).__name__ == "LSTM"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["robotics", "memory"])
def test_both_trainers_are_measured_on_a_workload(name: str) -> None:
    pytest.importorskip("sb3_contrib")
    found = throughput.measure(name, "", [8], 1, is_quick=True)
    speeds = [run["steps_per_second"] for runs in found["runs"].values() for run in runs]
    assert len(speeds) == 3
    assert min(speeds) > 0
    assert is_table(throughput.compare({name: found}))


def test_the_speed_of_cleanrl_is_that_after_its_first_iteration(tmp_path: Path) -> None:
    script = tmp_path / "ppo.py"
    work = WORKLOADS["CartPole-v1"]
    # 1,024 steps after 2 s, 1,024 more after 2.5.
    script.write_text("print('SPS: 512', 'SPS: 819', sep='\\nglobal_step=1\\n')")
    command = f"{sys.executable} {script}"
    found = run_cleanrl(command, work, 2048, seed=1)
    assert found["steps_per_second"] == pytest.approx(2048, rel=0.01)
    with pytest.raises(SystemExit, match=r"ppo\.py"):
        run_cleanrl(command, work, 4096, seed=1)


@pytest.mark.slow
def test_an_iteration_takes_longer_than_it_must() -> None:
    flags = WORKLOADS["CartPole-v1"].own_flags()
    runs = [run_ours("CartPole-v1", 10_240, flags, seed=1)]
    found = limits.explain(config_of("CartPole-v1", flags), runs)
    assert 0 < found["limit"] < 1.5
    result = {"runs": {"ours, 8": runs}, "explained": {"ours, 8": {**found, "memory_mib": 1.0}}}
    assert is_table(throughput.show_explained({"CartPole-v1": result}))


@pytest.mark.slow
def test_speed_is_measured_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "ON_DEVICE", ("LunarLander-v3",))
    runs = throughput.measure_device("cpu", "", batch=16, repetitions=1, is_quick=True)
    assert [*runs] == [*throughput.ON_DEVICE, throughput.BATCH]
    assert is_table(throughput.show_device(runs))


def test_a_policy_answers_in_a_time_that_is_shown() -> None:
    calls = latency.own_calls("MLP")
    found = {name: [latency.microseconds(call)] for name, call in calls.items()}
    assert min(times[0] for times in found.values()) > 1
    assert is_table(latency.show({"MLP": {"own": found, "other": found}}))


@pytest.mark.slow
def test_what_was_solved_is_not_measured_again(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "solve --env=CartPole-v1 --flags=--total_steps=2048 --name=tiny --seeds=1 --stop_when="
    monkeypatch.setattr(sys, "argv", line.split())
    solve.main()
    first = json.loads((results / "solve/solve.json").read_text())
    (run,) = first["tiny"]["runs"]
    assert run["steps"] == 2048
    assert 8 < run["evaluation"] <= 500
    page = (results / "solve/README.md").read_text()
    assert f"| tiny | ours | {run['seconds']:,.1f} | " in page
    assert is_table(page)
    solve.main()
    assert json.loads((results / "solve/solve.json").read_text()) == first


def test_seconds_of_what_was_not_solved_are_bounds() -> None:
    runs = [{"seconds": 50.0}, {"seconds": 900.0, "stopped": "seconds", "solved": False}]
    unsolved = {"seconds": 9.0, "solved": False}
    assert [solve.show_seconds(run, 900) for run in (*runs, unsolved)] == [
        *("50.0", "> 900", "unsolved")
    ]
    assert solve.middle([*runs, unsolved], 900) == runs[1]
    assert solve.show_ratio([runs[0]], [runs[1]], 900) == "> 18.00"
    assert solve.show_ratio([runs[0]], [unsolved], 900) == ""


@pytest.mark.slow
def test_a_learning_run_can_be_checked_bit_for_bit(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = "--env_name=CartPole-v1 --preset=none --num_envs=4 --num_steps=64 --num_iterations=12"
    monkeypatch.setattr(learning, "RUNS", {"tiny": flags})
    monkeypatch.setattr(learning, "FOLDER", results / "runs")
    run = learning.train("tiny", 2, 1)
    assert run["steps"] == run["curve"][-1][0] == 12 * 256
    assert learning.is_unchanged("tiny", {"runs": [run]})
    elsewhere = {"runs": [{**run, "first": "of another processor"}], "commit": "abc-dirty"}
    monkeypatch.setattr(commits, "checkout", lambda commit: nullcontext(Path(commit)))
    monkeypatch.setattr(commits, "train", lambda flags, root: harness.train(flags))
    assert learning.is_unchanged("tiny", elsewhere)
    changed = "--learning_rate=0.1"
    monkeypatch.setattr(commits, "train", lambda flags, root: harness.train(f"{flags} {changed}"))
    assert not learning.is_unchanged("tiny", elsewhere)
    learning.write_page({"tiny": {**harness.describe(), "runs": [run]}})
    assert is_table((results / "learning/README.md").read_text())


def exchanged() -> tuple[list[int], list[set[int]]]:
    """Return two cores, and those of two processes that were started on them, when exchanged."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # tests may have a core each
    cores = sorted(os.sched_getaffinity(0))[:2]
    sleep = ("sleep", "60")
    begun = [subprocess.Popen(["taskset", "--cpu-list", str(x), *sleep]) for x in cores]
    done = Event()
    try:
        with ThreadPoolExecutor() as threads:
            threads.submit(commits.exchange_cores, cores, done)
            deadline = time.monotonic() + 30
            found: list[set[int]] = []
            while found != [{x} for x in cores[::-1]] and time.monotonic() < deadline:
                time.sleep(0.02)
                found = [os.sched_getaffinity(process.pid) for process in begun]
            done.set()
    finally:
        for process in begun:
            process.kill()
            process.wait()
    return cores, found


def test_runs_side_by_side_exchange_their_cores() -> None:
    cores, found = harness.in_fresh_process(exchanged)
    assert found == [{core} for core in cores[::-1]]


def test_runs_with_rewards_in_another_unit_are_shown_in_the_environments_own(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = "--preset=none --num_envs=4 --num_steps=64 --num_minibatches=1 --hidden_size=8"
    env = f"--env_name=CartPole-v1 {tiny} {value_norm.WRAPPER.format(100)}"
    monkeypatch.setattr(value_norm, "TASKS", {"tiny": (env, 100.0)})
    monkeypatch.setattr(value_norm, "FOLDER", results / "runs")
    command = ["value_norm", "--ways=raw-popart", "--seeds=1", "--steps=2048", "--episodes=2"]
    monkeypatch.setattr(sys, "argv", command)
    value_norm.main()
    ((run,),) = (x["runs"] for x in harness.read_json(value_norm.RESULTS).values())
    assert run["steps"] == 2048
    assert 8 < run["last_100"] < 100
    assert 8 < run["evaluation"] < 501
    assert is_table((results / "value_norm/README.md").read_text())


def test_a_commit_is_the_last_of_the_trainer_and_dirty_with_new_files_but_not_with_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "git", partial(harness.git, cwd=tmp_path))
    harness.git("init")
    author = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    made = []
    for name in ("main.py", "README.md"):
        (tmp_path / name).touch()
        harness.git("add", ".")
        harness.git(*author, "commit", f"--message={name}")
        made.append(harness.git("rev-parse", "--short", "HEAD"))
    clean = harness.commit()
    assert [clean] == made[:1] != made[1:]
    for folder, found in (("results", clean), ("presets", f"{clean}-dirty")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "new.json").touch()
        assert harness.commit() == found


def test_goals_are_those_of_stop_when() -> None:
    assert zoo.read_goal("MountainCar-v0", "solved") == -110
    assert zoo.read_goal("PongNoFrameskip-v4", "solved>=18") == 18
    assert zoo.read_goal("CartPole-v1", "") is None
    for env_name, stop_when in (("Pendulum-v1", "solved"), ("CartPole-v1", "iteration>=3")):
        with pytest.raises(ValueError, match="give"):
            zoo.read_goal(env_name, stop_when)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CartPole-v1", "Hopper-v5"])
def test_the_zoos_values_train(name: str) -> None:
    found = zoo.train(name, 2, total_steps=500, seconds=None)
    rollout = zoo.ZOO[name]["n_steps"] * zoo.ZOO[name]["n_envs"]
    assert found["steps"] == rollout * -(-500 // rollout)
    low, high = {"CartPole-v1": (8, 500), "Hopper-v5": (0, 4000)}[name]
    assert low <= found["mean_return"] <= high  # the environment's own, not normalised
    assert low <= found["evaluation"] <= high
    assert found["command_seconds"] > found["seconds"] > 0
