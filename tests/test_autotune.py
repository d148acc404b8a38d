"""The number of workers is chosen by trial, with pools that take as long as they are told to."""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppo.config.config import Config
from ppo.envs.errors import WorkerError
from ppo.system import autotune
from tests.running import run_main


class Pool(AbstractContextManager["Pool"]):
    """Collect in so many seconds, by a clock of its own."""

    now = 0.0

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def collect(self, iteration: int) -> None:
        Pool.now += self.seconds

    def __exit__(self, *exception: object) -> None:
        pass


class Pools:
    """Make pools with the seconds of each number of workers; record which were tried."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = {int(name.removeprefix("by_")): value for name, value in seconds.items()}
        self.tried: list[int] = []

    def __call__(self, count: int) -> Pool:
        self.tried.append(count)
        return Pool(self.seconds[count])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the cache, on a machine that has nothing else to do."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(autotune.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(autotune, "time", SimpleNamespace(perf_counter=lambda: Pool.now))
    return tmp_path / "ppo" / "workers"


def config(**values: Any) -> Config:
    return Config(
        **{
            "num_workers": 4,
            "inference": "worker",
            "total_steps": 10**6,
            "env_name": "CartPole-v1",
            **values,
        }
    )


def found(pools: Pools, versions: str = "1", **values: Any) -> int:
    return autotune.choose_num_workers(config(**values), pools, {"torch": versions})[0]


@pytest.mark.parametrize(
    ("alone", "by_four", "chosen"), [(0.001, 0.004, 0), (0.004, 0.001, 4), (0.004, 0.004, 4)]
)
def test_processes_are_used_unless_this_one_is_faster_and_that_is_cached(
    alone: float, by_four: float, chosen: int, cache: Path
) -> None:
    pools = Pools(by_0=alone, by_4=by_four)
    count, notes = autotune.choose_num_workers(config(), pools, {})
    assert (count, pools.tried) == (chosen, [4, 0])
    assert len(notes) == (count == 0)
    assert autotune.choose_num_workers(config(seed=3, learning_rate=1e-3), pools, {}) == (
        count,
        notes,
    )
    assert pools.tried == [4, 0]  # it was known


@pytest.mark.parametrize(
    "values", [{"num_envs": 16}, {"activation": "gelu"}, {"env_kwargs": {"a": 1}}]
)
def test_settings_and_versions_that_matter_are_measured_apart(values: dict) -> None:
    pools = Pools(by_0=0.001, by_4=0.004)
    found(pools)
    found(pools, **values)
    found(pools, versions="2")
    assert len(pools.tried) == 6


def test_a_slow_environment_is_never_tried_in_this_process() -> None:
    pools = Pools(by_4=0.03)
    assert found(pools) == 4
    assert found(pools) == 4
    assert pools.tried == [4]


def test_an_error_of_the_trial_is_left_to_the_run(cache: Path) -> None:
    def raising(count: int) -> Any:
        raise WorkerError("it broke")

    assert autotune.choose_num_workers(config(), raising, {}) == (4, [])
    assert not cache.exists()


@pytest.mark.parametrize("values", [{"num_workers": 1}, {"num_iterations": 3}, {"overlap": True}])
def test_nothing_is_tried_where_there_is_nothing_to_choose(values: dict, cache: Path) -> None:
    assert found(Pools(), **values) == values.get("num_workers", 4)
    assert not cache.exists()


def test_nothing_is_tried_on_a_busy_machine(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune.os, "getloadavg", lambda: (1000.0, 1.0, 1.0))
    assert found(Pools()) == 4


def test_nothing_is_cached_of_an_environment_by_import_path(cache: Path) -> None:
    found(Pools(by_0=0.001, by_4=0.004), env_name="my:Env")
    assert not cache.exists()


@pytest.mark.parametrize("content", ["", "1", "[1", "{}", "[]", '{"a": 1}', '["x"]', "[[1]]"])
def test_a_cache_that_cannot_be_read_is_written_anew(content: str, cache: Path) -> None:
    pools = Pools(by_0=0.001, by_4=0.004)
    found(pools)
    (path,) = cache.iterdir()
    path.write_text(content)
    assert found(pools) == 0
    assert pools.tried == [4, 0, 4, 0]
    assert len(json.loads(path.read_text())) == 2


def test_without_a_home_nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(autotune.Path, "home", no_home)
    assert found(Pools(by_0=0.001, by_4=0.004)) == 0


def test_a_resumed_run_keeps_its_number_of_workers(tmp_path: Path) -> None:
    flags = (
        "--env_name=CartPole-v1",
        "--preset=none",
        "--num_envs=4",
        "--num_steps=16",
        "--total_steps=6400",
    )
    on_all_cores = {"preexec_fn": lambda: os.sched_setaffinity(0, range(os.cpu_count() or 1))}
    done = run_main(*flags, "--eval_episodes=0", f"--run_dir={tmp_path}/run", **on_all_cores)
    assert done.returncode == 0, done.stderr
    chosen = json.loads((tmp_path / "run" / "config.json").read_text())["num_workers"]
    assert ("workers: none" in done.stdout) == (chosen == 0)
    done = run_main(f"--resume={tmp_path}/run", "--total_steps=7680", **on_all_cores)
    assert (done.returncode, "workers:" in done.stdout) == (0, False)
