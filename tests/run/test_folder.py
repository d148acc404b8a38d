"""The folder of a run: one process at a time, never overwritten, every event in it."""

import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ppo.config.config import Config
from ppo.errors import ConfigError, RunInUse
from ppo.run.folder import RunFolder, fault_kinds
from tests.running import ROOT

HOLD = """
import sys
from ppo.config.config import Config
from ppo.run.folder import RunFolder
with RunFolder(Config(run_dir=sys.argv[1]), {}):
    print("held", flush=True)
    sys.stdin.read()
"""


def faults() -> dict[str, int]:
    return dict.fromkeys(fault_kinds(), 0)


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_a_new_folder_has_every_setting_and_gets_every_event(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    counted = faults()
    config = Config(run_dir=str(tmp_path / "a" / "run"), seed=7)
    with RunFolder(config, counted) as run:
        run.iteration = 3
        run.event("worker_lost", "one is\nlost", worker=1)
        run.event("step_skipped", count=5)
        run.event("resumed", checkpoint="x")
    about = json.loads((run.path / "config.json").read_text())
    assert about["seed"] == 7
    assert about["run_id"] == run.run_id
    assert about.keys() >= config.__getstate__().keys() | {"versions", "git_commit"}
    lost, skipped, resumed = events(run.path)
    assert (lost["kind"], lost["iteration"], lost["message"], lost["worker"]) == (
        "worker_lost",
        3,
        "one is\nlost",
        1,
    )
    assert (skipped["kind"], resumed["checkpoint"]) == ("step_skipped", "x")
    assert counted == {**faults(), "worker_lost": 1, "step_skipped": 5}
    assert capfd.readouterr().err == "warning: one is\nlost\n"


def test_the_folder_of_a_class_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with RunFolder(Config(env_name="<MyEnv>", seed=3), faults()) as run:
        assert run.path.parent == tmp_path / "runs"
        assert run.path.name.startswith("MyEnv-s3-")


def test_a_folder_that_another_process_uses_is_refused_until_that_dies(tmp_path: Path) -> None:
    held = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        held, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == "held\n"
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        for resume in (None, "auto", str(tmp_path)):
            with pytest.raises(RunInUse, match=f"in use by process {owner.pid} on "):
                RunFolder(Config(run_dir=str(tmp_path), resume=resume), faults())
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        owner.kill()
    with RunFolder(Config(resume=str(tmp_path)), faults()) as run:
        assert run.path == tmp_path
        assert f"process {os.getpid()} on " in (tmp_path / "lock").read_text()
        assert run.run_id == json.loads(before["config.json"])["run_id"]


def test_a_folder_may_be_used_again_and_leaves_no_descriptor(tmp_path: Path) -> None:
    with RunFolder(Config(run_dir=str(tmp_path)), faults()):
        pass
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with RunFolder(Config(resume=str(tmp_path)), faults()):
            pass
    with pytest.raises(ConfigError, match="not empty"):
        RunFolder(Config(run_dir=str(tmp_path)), faults())
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("name", ["lock", ".hidden"])
def test_a_folder_that_holds_anything_is_not_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(
        ConfigError, match="is not empty, and no run is overwritten: choose another by --run_dir"
    ):
        RunFolder(Config(run_dir=str(tmp_path)), faults())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}


def test_auto_begins_in_a_folder_that_has_saved_nothing_yet_but_in_no_other(tmp_path: Path) -> None:
    config = Config(run_dir=str(tmp_path), resume="auto")
    with RunFolder(config, faults()) as run:
        run.event("first")
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    with RunFolder(config, faults()) as run:
        assert run.path == tmp_path
        run.event("second")
    assert [event["kind"] for event in events(tmp_path)] == ["first", "second"]
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        RunFolder(config, faults())


@pytest.mark.parametrize("place", ["file/below", "/proc/nowhere"])
def test_a_folder_that_cannot_be_made_is_answered_with_the_flag(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written to .*--run_dir"):
        RunFolder(Config(run_dir=str(tmp_path / place)), faults())


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "flock", fails)
    said = rf"{tmp_path} .*its file system has no locks: .*--run_dir"
    with pytest.raises(ConfigError, match=said):
        RunFolder(Config(run_dir=str(tmp_path)), faults())


def test_a_full_disk_stops_no_run_and_loses_no_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    limit = 300
    with RunFolder(Config(run_dir=str(tmp_path)), faults()) as run:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            for number in range(10):
                run.event("numbered", number=number)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert path.stat().st_size == limit
        run.event("numbered", number=10)
    assert [event["number"] for event in events(tmp_path)] == list(range(11))
