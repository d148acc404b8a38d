"""Fixtures; tests that run side by side compute on cores of their own.

Where threads of several processes wait for each other on the same cores, learning from images takes
ten times as long.
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # however busy the machine is
settings.load_profile("untimed")
if hasattr(os, "sched_setaffinity"):
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[number::count] or cores)
# As in an activated virtual environment, whose commands a shell finds.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# Which runs would ignore, too, if the tests are below nohup, or in the background of a script.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all cases but the first of a test marked slow_but_first as slow."""
    seen = set()
    for item in items:
        if item.get_closest_marker("slow_but_first"):
            test = item.nodeid.partition("[")[0]
            if test in seen:
                item.add_marker("slow")
            seen.add(test)


@pytest.fixture(autouse=True)
def environments_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play environments in the tests' own process, which saves half a second for each run; by
    main.py, and in tests/extras/supervision/test_isolation.py, they are isolated."""
    from ppo.guard import guard

    monkeypatch.setattr(guard(), "start", lambda: None)


@pytest.fixture
def gymnasium_registry() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    import gymnasium

    import_module("ale_py")  # which registers its environments once only
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.fixture(scope="session")
def cartpole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run on CartPole."""
    from tests.running import run_main

    flags = "--env_name=CartPole-v1 --preset=none --num_envs=4 --num_steps=64 --num_workers=2"
    folder = tmp_path_factory.mktemp("runs") / "cartpole"
    done = run_main(
        *flags.split(),
        "--total_steps=5120",
        "--learning_rate=1e-5",
        "--checkpoint_every=5",
        "--eval_episodes=0",
        f"--run_dir={folder}",
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture
def cartpole_copy(cartpole_run: Path, tmp_path: Path) -> Path:
    """A copy of that folder, which a test may change."""
    return Path(shutil.copytree(cartpole_run, tmp_path / "run", symlinks=True))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line in this process; returns its exit code, its output and its errors."""
    from ppo.__main__ import main

    def call(*arguments: str) -> tuple[int, str, str]:
        return main(arguments), *capsys.readouterr()

    return call
