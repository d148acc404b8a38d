"""What a run leaves on disk, whatever goes wrong there."""

import errno
import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.kills import check_saving
from ppo.config.config import Config, folder_to_resume
from ppo.errors import CheckpointError, ConfigError, NotSaved, RunInUse
from ppo.run import checkpoint
from ppo.run.checkpoint import Checkpoints, load_newest, newest_first
from ppo.run.folder import FAULTS, RunFolder
from tests.running import ROOT

TENSORS = {"weights": torch.arange(4.0)}
HOLD = """
import sys
from ppo.config.config import Config
from ppo.run.folder import RunFolder
with RunFolder(Config(run_dir=sys.argv[1]), {}):
    print("held", flush=True)
    sys.stdin.read()
"""


def faults() -> dict[str, int]:
    return dict.fromkeys(FAULTS, 0)


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


def test_a_folder_left_may_be_used_again_and_leaves_no_descriptor(tmp_path: Path) -> None:
    with RunFolder(Config(run_dir=str(tmp_path)), faults()):
        pass
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with RunFolder(Config(resume=str(tmp_path)), faults()):
            pass
    with pytest.raises(ConfigError, match="not empty"):
        RunFolder(Config(run_dir=str(tmp_path)), faults())
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("name", ["lock", "config.json", "notes.txt", ".hidden", "checkpoints"])
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
        assert not run.is_resumed
        run.event("second")
    assert [event["kind"] for event in events(tmp_path)] == ["first", "second"]
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        RunFolder(config, faults())


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nowhere"])
def test_a_folder_that_cannot_be_made_is_answered_with_the_flag(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written to .*--run_dir"):
        RunFolder(Config(run_dir=str(tmp_path / place)), faults())


def test_the_folder_to_resume_is_that_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun, saved = Path("begun"), Path("saved")
    (begun / "checkpoints").mkdir(parents=True)
    (begun / "checkpoints" / ".tmp-1-000000000000.safetensors").touch()
    (saved / "checkpoints").mkdir(parents=True)
    (saved / "checkpoints" / "000000000100.safetensors").touch()
    Path("runs/named").mkdir(parents=True)
    assert folder_to_resume({}) is None
    assert folder_to_resume({"resume": "none", "run_dir": "saved"}) is None
    assert folder_to_resume({"resume": "auto", "run_dir": "saved"}) == saved
    assert folder_to_resume({"resume": "auto", "run_dir": "begun"}) is None
    assert folder_to_resume({"resume": "auto", "run_dir": "new"}) is None
    assert folder_to_resume({"resume": "saved"}) == saved
    assert folder_to_resume({"resume": "saved", "run_dir": "saved"}) == saved
    assert folder_to_resume({"resume": "named"}) == Path("runs/named")
    for wrong, named in (
        ({"resume": "auto"}, "--run_dir"),
        ({"resume": "auto", "run_dir": ""}, "--run_dir"),
        ({"resume": "nowhere"}, "--resume=nowhere"),
        ({"resume": "saved", "run_dir": "begun"}, "--run_dir=begun"),
    ):
        with pytest.raises(ConfigError, match=named):
            folder_to_resume(wrong)


def test_a_full_disk_stops_no_run_and_loses_no_event(tmp_path: Path) -> None:
    size = (tmp_path / "events.jsonl", 300)
    with RunFolder(Config(run_dir=str(tmp_path)), faults()) as run:
        before, handler = (
            resource.getrlimit(resource.RLIMIT_FSIZE),
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
        )
        resource.setrlimit(resource.RLIMIT_FSIZE, (size[1], before[1]))
        try:
            for number in range(10):
                run.event("numbered", number=number)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert size[0].stat().st_size == size[1]
        run.event("numbered", number=10)
    assert [event["number"] for event in events(tmp_path)] == list(range(11))


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_of_a_process_that_is_killed_while_it_saves_the_newest_checkpoint_loads(kills: int) -> None:
    result = check_saving(kills, random.Random(0))
    assert result["wrong"] == []
    assert result["loads"] == kills


class Saving:
    """Checkpoints in a folder, and what was said about them."""

    def __init__(self, folder: Path) -> None:
        self.told: list[tuple[str, str]] = []
        self.folder = folder
        self.checkpoints = Checkpoints(
            folder, lambda kind, message: self.told.append((kind, message))
        )

    def save(self, step: int, is_best: bool = False) -> None:
        self.checkpoints.save(TENSORS, {"config": {"seed": 0}, "step": step}, is_best)
        self.checkpoints.wait()

    @property
    def steps(self) -> list[int]:
        return sorted(int(path.stem) for path in newest_first(self.folder))

    def linked(self, name: str) -> int:
        assert (self.folder / name).is_symlink()
        return int(checkpoint.load(self.folder / name)[1]["step"])


def test_the_last_three_and_the_best_checkpoints_stay(tmp_path: Path) -> None:
    saving = Saving(tmp_path / "checkpoints")
    for step, steps, best in (
        (1, [1], None),
        (2, [1, 2], 2),
        (3, [1, 2, 3], 2),
        (4, [2, 3, 4], 2),
        (5, [2, 3, 4, 5], 2),
        (6, [2, 4, 5, 6], 2),
        (7, [5, 6, 7], 7),
        (8, [6, 7, 8], 7),
        (11, [7, 8, 11], 7),
    ):
        saving.save(step, is_best=step == best)
        assert saving.steps == steps
        assert saving.linked("last.safetensors") == step
        assert best is None or saving.linked("best.safetensors") == best
    saving.checkpoints.finish()
    assert saving.told == []
    assert {path.name for path in saving.folder.iterdir()} == {
        *(f"{step:012d}.safetensors" for step in (7, 8, 11)),
        "last.safetensors",
        "best.safetensors",
    }


def test_a_state_that_is_saved_already_may_yet_become_the_best(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    saving.save(1)
    saving.save(1, is_best=True)
    assert saving.linked("best.safetensors") == 1
    assert saving.steps == [1]


def test_nothing_is_removed_that_another_wrote_but_half_written_files(tmp_path: Path) -> None:
    foreign = [
        "000000000001.safetensors",
        "notes.txt",
        "1.safetensors",
        "000000000001.safetensors.bak",
        "model.pt",
    ]
    for name in foreign:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".tmp-99-000000000009.safetensors").write_text("half")
    (tmp_path / ".tmp-99-last.safetensors").symlink_to("nowhere")
    saving = Saving(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(foreign)
    for step in range(2, 9):
        saving.save(step)
    assert [(tmp_path / name).read_text() for name in foreign] == ["mine"] * len(foreign)
    assert saving.steps == [1, 6, 7, 8]


def test_a_resumed_run_counts_what_it_wrote_before_and_nothing_else(tmp_path: Path) -> None:
    before = Saving(tmp_path)
    for step in (1, 2, 3):
        before.save(step)
    checkpoint.save(
        tmp_path / "000000000009.safetensors", TENSORS, {"config": {"seed": 0}, "step": 9}
    )
    checkpoint.save(
        tmp_path / "000000000000.safetensors", TENSORS, {"config": {"seed": 1}, "step": 0}
    )
    after = Saving(tmp_path)
    after.checkpoints.adopt({"config": {"seed": 0}, "step": 3})
    for step in (4, 5):
        after.save(step)
    assert after.steps == [0, 3, 4, 5, 9]


@pytest.mark.parametrize("failing", ["open", "fsync", "read back", "link"])
def test_a_checkpoint_that_could_not_be_written_is_told_and_the_next_one_tried(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving = Saving(tmp_path)
    for step in (1, 2, 3):
        saving.save(step)

    def fail(*_: Any, **__: Any) -> Any:
        if failing == "read back":
            raise CheckpointError("it is damaged")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        owner, name = {
            "open": (Path, "open"),
            "fsync": (os, "fsync"),
            "read back": (checkpoint, "load"),
            "link": (Path, "symlink_to"),
        }[failing]
        patch.setattr(owner, name, fail)
        saving.save(4)
        saving.save(5)
    assert [kind for kind, _ in saving.told] == ["checkpoint_failed"] * 2
    assert "step 5" in saving.told[1][1]
    assert saving.steps == ([1, 2, 3, 4, 5] if failing == "link" else [1, 2, 3])
    assert not list(tmp_path.glob(".tmp-*"))
    assert saving.linked("last.safetensors") == 3
    instead = saving.steps[-1]
    with pytest.raises(NotSaved, match=rf"(No space left|damaged).*the newest is .*{instead:012d}"):
        saving.checkpoints.finish()
    saving.save(5)
    saving.checkpoints.finish()
    assert saving.linked("last.safetensors") == 5
    assert len(saving.steps) == 3
    assert len(saving.told) == 2


def test_numbers_that_are_not_finite_are_not_saved_and_named(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    saving.checkpoints.save({"model.w": torch.tensor([1, float("nan")])}, {"config": {}, "step": 1})
    with pytest.raises(NotSaved, match=r"model\.w would be saved .*: there is none"):
        saving.checkpoints.finish()
    assert [kind for kind, _ in saving.told] == ["checkpoint_failed"]
    assert list(tmp_path.iterdir()) == []


def test_the_newest_checkpoint_that_is_whole_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        load_newest(tmp_path, pytest.fail)
    for step in (20, 100, 3):
        checkpoint.save(tmp_path / f"{step:012d}.safetensors", TENSORS, {"step": step})
        os.utime(tmp_path / f"{step:012d}.safetensors", (step % 7, step % 7))  # the name counts
    (tmp_path / "000000009999.safetensors").symlink_to("000000000003.safetensors")
    checkpoint.save(tmp_path / "99999.safetensors", TENSORS, {"step": 99999})
    assert load_newest(tmp_path, pytest.fail)[2]["step"] == 100
    for step, instead in ((100, 20), (20, 3)):
        path = tmp_path / f"{step:012d}.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        damages: list[str] = []
        assert load_newest(tmp_path, damages.append)[2]["step"] == instead
        assert [name in damage for name, damage in zip(("100", "20"), damages, strict=False)] == [
            True
        ] * len(damages)
        assert len(damages) == (1 if step == 100 else 2)
    (tmp_path / "000000000003.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        load_newest(tmp_path, lambda _: None)


def test_a_lock_is_freed_by_whoever_leaves(tmp_path: Path) -> None:
    with RunFolder(Config(run_dir=str(tmp_path)), faults()), ExitStack() as stack:
        file = stack.enter_context((tmp_path / "lock").open())
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
