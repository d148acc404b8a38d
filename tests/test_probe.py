"""How many workers are chosen, by pools that take as long as they are told to."""

import json
import os
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from ppo import probe
from ppo.config import Config
from tests.running import run_main


class Pool:
    """Collects in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def collect(self, iteration: int) -> None:
        time.sleep(self.seconds)


class Pools:
    """What find_num_workers tries, with the seconds of each number of workers."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = {int(name.removeprefix("by_")): value for name, value in seconds.items()}
        self.tried: list[int] = []

    def __call__(self, count: int) -> AbstractContextManager[Pool]:
        self.tried.append(count)
        return nullcontext(Pool(self.seconds[count]))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what was found is kept; the machine has nothing else to do."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(probe.os, "getloadavg", lambda: (0.2, 0.2, 0.2))
    return tmp_path / "ppo" / "workers.json"


def config(**values: Any) -> Config:
    return Config(**{"env_name": "CartPole-v1", "num_workers": 4, "model": "mlp", "total_steps": 10**6, **values})


@pytest.mark.parametrize(("here", "there", "chosen"), [(0.001, 0.004, 0), (0.004, 0.001, 4), (0.004, 0.004, 4)])
def test_whoever_collects_faster_is_chosen_and_that_is_kept(
    here: float, there: float, chosen: int, cache: Path
) -> None:
    pools = Pools(by_0=here, by_4=there)
    count, found = probe.find_num_workers(config(), pools)
    assert (count, pools.tried) == (chosen, [0, 4])
    assert found is not None
    assert str(cache) in found
    assert probe.find_num_workers(config(), pools) == (count, found)
    assert pools.tried == [0, 4]  # it was known
    probe.find_num_workers(config(num_envs=16), pools)
    assert pools.tried == [0, 4, 0, 4]  # another size was not


def test_slow_environments_need_no_second_trial(cache: Path) -> None:
    pools = Pools(by_0=0.03)
    assert probe.find_num_workers(config(), pools) == (4, None)
    assert probe.find_num_workers(config(), pools) == (4, None)
    assert pools.tried == [0]


@pytest.mark.parametrize("values", [{"num_workers": 1}, {"num_iterations": 3}, {"overlap": True}])
def test_nothing_is_tried_where_there_is_nothing_to_choose(values: dict, cache: Path) -> None:
    assert probe.find_num_workers(config(**values), Pools()) == (values.get("num_workers", 4), None)
    assert not cache.exists()


def test_what_a_busy_machine_shows_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.os, "getloadavg", lambda: (1.5, 1.5, 1.5))
    probe.find_num_workers(config(), Pools(by_0=0.001, by_4=0.004))
    assert not cache.exists()


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"a": 1}'])
def test_a_cache_that_cannot_be_read_is_written_anew(content: str, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text(content)
    assert probe.find_num_workers(config(), Pools(by_0=0.001, by_4=0.004))[0] == 0
    assert any("CartPole-v1" in key for key in json.loads(cache.read_text()))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="with one core there is nothing to choose")
def test_a_run_says_what_was_found_and_keeps_to_it(tmp_path: Path) -> None:
    on_all_cores = {"preexec_fn": lambda: os.sched_setaffinity(0, range(os.cpu_count() or 1))}
    flags = ("--env_name=CartPole-v1", "--preset=none", "--num_envs=4", "--num_steps=16", "--total_steps=6400")
    done = run_main(*flags, "--eval_episodes=0", f"--run_dir={tmp_path}/run", **on_all_cores)
    assert done.returncode == 0, done.stderr
    assert "processes collect" in done.stdout
    assert json.loads((tmp_path / "run" / "config.json").read_text())["num_workers"] in (0, min(4, os.cpu_count() or 1))
    done = run_main(f"--resume={tmp_path}/run", "--total_steps=7680", **on_all_cores)
    assert "processes collect" not in done.stdout
