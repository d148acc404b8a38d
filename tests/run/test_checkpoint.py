"""Checkpoints: readable by safetensors alone, verifiable by their bytes, whole or not there."""

import ast
import errno
import hashlib
import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch

import ppo.run.saving
from benchmarks.kills import check_saving
from ppo.errors import CheckpointError, SaveFailed
from ppo.run import checkpoint
from ppo.run.checkpoint import load_newest, newest_first
from ppo.run.saving import Checkpoints
from tests.running import ROOT

VECTOR = torch.arange(10.0, requires_grad=True)
TENSORS = {
    "weights": torch.arange(6.0).reshape(2, 3),
    "count": torch.tensor(1e-4, dtype=torch.float64),
    "steps": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "first": VECTOR[:4],
    "second": VECTOR[4:].view(2, 3),
    "empty": torch.zeros(0),
}
VALUES = {
    "config": {"env_name": "Mu-v0 \N{GREEK SMALL LETTER MU}", "target_kl": None},
    "step": 2**40,
    "list": [1.5, True],
}
STATE = checkpoint.copy_state({**TENSORS, **VALUES})
WEIGHTS = torch.arange(4.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "last.safetensors"


def test_safetensors_alone_reads_what_was_saved(path):
    checkpoint.save(path, STATE)
    with safetensors.safe_open(path, "pt") as file:
        assert set(file.keys()) == set(TENSORS)
        for name, tensor in TENSORS.items():
            torch.testing.assert_close(file.get_tensor(name), tensor.detach(), rtol=0, atol=0)
        state = json.loads(file.metadata()["state"])
    assert state.pop("sha256")
    assert state == {"format": 4, **VALUES}


def test_the_same_content_makes_the_same_bytes(tmp_path):
    for name in "abcd":
        checkpoint.save(tmp_path / name, dict(sorted(STATE.items(), reverse=name == "a")))
    assert len({(tmp_path / name).read_bytes() for name in "abcd"}) == 1


def test_the_sha256_is_that_of_the_bytes_in_the_file(path):
    checkpoint.save(path, STATE)
    content = path.read_bytes()
    (header_size,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + header_size]), content[8 + header_size :]
    state = json.loads(header.pop("__metadata__")["state"])
    digest = state.pop("sha256")
    dtypes = {"F32": "float32", "F64": "float64", "I64": "int64", "BOOL": "bool"}
    expected = json.dumps(state, sort_keys=True).encode()
    for name, entry in sorted(header.items()):
        expected += f"{name} torch.{dtypes[entry['dtype']]} {tuple(entry['shape'])}".encode()
        expected += data[slice(*entry["data_offsets"])]
    assert digest == hashlib.sha256(expected).hexdigest()


def test_a_copied_state_does_not_change_with_the_original() -> None:
    weights = torch.ones(2, requires_grad=True)
    counts = np.zeros(2, np.int64)
    env = {"levels": [1]}
    state = checkpoint.copy_state({"weights": weights, "counts": counts, "step": 1, "env": env})
    env["levels"].append(2)
    with torch.no_grad():
        weights += 1
    counts += 1
    assert state["weights"].tolist() == [1, 1]
    assert not state["weights"].requires_grad
    assert torch.equal(state["counts"], torch.zeros(2, dtype=torch.int64))
    assert state["step"] == 1
    assert state["env"] == {"levels": [1]}


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_of_a_process_that_is_killed_while_it_saves_the_newest_checkpoint_loads(kills: int) -> None:
    result = check_saving(kills, random.Random(0))
    assert result["wrong"] == []
    assert result["loads"] == kills


class Saving:
    """Checkpoints in a folder, and what was said about them."""

    def __init__(self, folder: Path, keep_every: int | None = None) -> None:
        self.told: list[tuple[str, str]] = []
        self.folder = folder
        self.checkpoints = Checkpoints(
            folder, lambda kind, message: self.told.append((kind, message)), keep_every
        )

    def save(self, step: int, is_best: bool = False) -> None:
        """Save the state of an iteration of ten steps."""
        state = {"weights": WEIGHTS, "config": {"seed": 0}, "step": step, "iteration": step // 10}
        self.checkpoints.remember(state, is_best)
        self.checkpoints.save()
        self.checkpoints.wait()

    @property
    def steps(self) -> list[int]:
        return sorted(int(path.stem) for path in newest_first(self.folder))

    def linked(self, name: str) -> int:
        assert (self.folder / name).is_symlink()
        return int(checkpoint.load(self.folder / name)["step"])


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


def test_on_a_file_system_without_links_the_last_and_the_best_are_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any, **options: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "symlink", fails)
    saving = Saving(tmp_path)
    for step in range(1, 6):
        saving.save(step, is_best=step == 1)
    saving.checkpoints.finish()
    assert saving.told == []
    assert saving.steps == [3, 4, 5]
    loaded = [checkpoint.load(tmp_path / f"{name}.safetensors") for name in ("last", "best")]
    assert [int(state["step"]) for state in loaded] == [5, 1]
    assert load_newest(tmp_path, pytest.fail)[0].name == "000000000005.safetensors"


def test_milestones_stay_for_good(tmp_path: Path) -> None:
    saving = Saving(tmp_path / "checkpoints", keep_every=2)
    milestones = tmp_path / "milestones"
    for step in range(0, 100, 10):
        saving.save(step)
    assert saving.steps == [70, 80, 90]
    kept = {path.name: path.stat().st_mtime_ns for path in milestones.iterdir()}
    assert kept.keys() == {f"{step:012d}.safetensors" for step in (20, 40, 60, 80)}
    for name in kept:
        assert checkpoint.load(milestones / name)["step"] == int(name[:12])
    (milestones / ".tmp-000000000100.safetensors").write_text("half")
    (milestones / "000000000080.safetensors").unlink()  # as if killed before it was written
    resumed = Saving(tmp_path / "checkpoints", keep_every=4)
    own = resumed.folder / "000000000080.safetensors"
    resumed.checkpoints.take_ownership(own, {"config": {"seed": 0}, "step": 80})
    for step in (80, 100, 110, 120):
        resumed.save(step)
    found = {path.name: path.stat().st_mtime_ns for path in milestones.iterdir()}
    assert found.keys() == kept.keys() | {"000000000120.safetensors"}
    assert [n for n in kept if found[n] != kept[n]] == ["000000000080.safetensors"]
    assert saving.told == resumed.told == []


def test_a_milestone_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "milestones").write_text("a file")
    saving = Saving(tmp_path / "checkpoints", keep_every=2)
    for step in (20, 30):
        saving.save(step)
    assert saving.steps == [20, 30]
    ((kind, message),) = saving.told
    assert kind == "checkpoint_failed"
    assert "step 20" in message
    saving.checkpoints.finish()
    assert saving.linked("last.safetensors") == 30


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
    (tmp_path / ".tmp-000000000009.safetensors").write_text("half")
    (tmp_path / ".tmp-last.safetensors").symlink_to("nowhere")
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
    later = {"weights": WEIGHTS, "config": {"seed": 0}, "step": 9}
    checkpoint.save(tmp_path / "000000000009.safetensors", later)
    other = {"weights": WEIGHTS, "config": {"seed": 1}, "step": 0}
    checkpoint.save(tmp_path / "000000000000.safetensors", other)
    after = Saving(tmp_path)
    own = tmp_path / "000000000003.safetensors"
    after.checkpoints.take_ownership(own, {"config": {"seed": 0}, "step": 3})
    for step in (4, 5):
        after.save(step)
    assert after.steps == [0, 3, 4, 5, 9]


@pytest.mark.parametrize("failing", ["fsync", "read back", "link"])
def test_a_checkpoint_that_cannot_be_written_is_reported_and_tried_again(
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
            "fsync": (os, "fsync"),
            "read back": (checkpoint, "load"),
            "link": (ppo.run.saving, "link_or_copy"),
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
    with pytest.raises(
        SaveFailed, match=rf"(No space left|damaged).*the newest is .*{instead:012d}"
    ):
        saving.checkpoints.finish()
    saving.save(5)
    saving.checkpoints.finish()
    assert saving.linked("last.safetensors") == 5
    assert len(saving.steps) == 3
    assert len(saving.told) == 2


def test_callbacks_may_have_numbers_that_are_not_finite(tmp_path: Path) -> None:
    state = {
        **STATE,
        "callbacks.Mine.0.last": float("-inf"),
        "callbacks.Mine.0.seen": torch.tensor([1, float("nan")]),
    }
    checkpoint.save(tmp_path / "mine", state)
    found = checkpoint.load(tmp_path / "mine")
    assert found["callbacks.Mine.0.last"] == float("-inf")
    assert found["callbacks.Mine.0.seen"].isnan().tolist() == [False, True]


def test_the_newest_checkpoint_that_is_whole_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        load_newest(tmp_path, pytest.fail)
    for step in (20, 100, 3):
        checkpoint.save(tmp_path / f"{step:012d}.safetensors", {**STATE, "step": step})
        os.utime(tmp_path / f"{step:012d}.safetensors", (step % 7, step % 7))  # the name counts
    (tmp_path / "000000009999.safetensors").symlink_to("000000000003.safetensors")
    checkpoint.save(tmp_path / "99999.safetensors", {**STATE, "step": 99999})
    assert load_newest(tmp_path, pytest.fail)[1]["step"] == 100
    for step, instead in ((100, 20), (20, 3)):
        path = tmp_path / f"{step:012d}.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        damages: list[str] = []
        assert load_newest(tmp_path, damages.append)[1]["step"] == instead
        assert str(path) in damages[-1]
    (tmp_path / "000000000003.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        load_newest(tmp_path, lambda _: None)


RUNS_CODE = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
RUNS_CODE |= {"torch.save", "torch.load"}


def runs_code_when_read(source):
    """Whether a module imports a serialiser that can run code, or saves and loads by torch's."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        if RUNS_CODE & set(names):
            return True
    return False


# What a process of the trainer's sends to another, as multiprocessing does.
BETWEEN_PROCESSES = {
    ROOT / "envs" / "env_factories.py": "unpickle = cache(pickle.loads)",  # given to train
    ROOT / "envs" / "registrations.py": "pickle.loads(content)",  # given to gymnasium
    ROOT / "envs" / "channel.py": "pickle.loads(",
    ROOT / "ppo" / "extras" / "supervision" / "isolation.py": "pickle.loads(pickled)",
    ROOT / "envs" / "shared_memory.py": "class _Unpickler(Unpickler)",
}


def test_no_module_can_unpickle_a_file():
    assert runs_code_when_read("from torch import load")
    folders = [ROOT / folder for folder in ("ppo", "envs", "models")]
    sources = [ROOT / "main.py", *(path for folder in folders for path in folder.rglob("*.py"))]
    found = {path for path in sources if runs_code_when_read(path.read_text())}
    assert found == BETWEEN_PROCESSES.keys()
    for path, line in BETWEEN_PROCESSES.items():
        assert line in path.read_text()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("model.w", torch.tensor([1, float("nan")]), r"model\.w would be saved .*: there is none"),
        ("callback.x", {1, 2}, "there is none"),
        ("callback.x", torch.ones(1).to_sparse(), "there is none"),
    ],
    ids=["not finite", "set", "sparse"],
)
def test_a_state_that_cannot_be_saved_is_no_silent_failure(
    name: str, value: Any, said: str, tmp_path: Path
) -> None:
    saving = Saving(tmp_path)
    saving.checkpoints.remember({name: value, "config": {}, "step": 1})
    saving.checkpoints.save()
    with pytest.raises(SaveFailed, match=said):
        saving.checkpoints.finish()
    assert [kind for kind, _ in saving.told] == ["checkpoint_failed"]
    assert list(tmp_path.iterdir()) == []


def test_a_transposed_tensor_is_saved(tmp_path: Path) -> None:
    table = torch.arange(6.0).view(2, 3).T
    state = checkpoint.copy_state({"table": table, "config": {}, "step": 1})
    checkpoint.save(tmp_path / "state", state)
    assert torch.equal(checkpoint.load(tmp_path / "state")["table"], table)


def test_nothing_but_the_newest_checkpoint_is_left(path):
    for step in range(2):
        checkpoint.save(path, {**STATE, "step": step})
    assert list(path.parent.iterdir()) == [path]
    with safetensors.safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["state"])["step"] == 1


def test_numbers_that_are_not_finite_are_not_saved_and_named(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    weights = torch.tensor([1, float("nan")])
    saving.checkpoints.remember({"model.w": weights, "config": {}, "step": 1})
    saving.checkpoints.save()
    with pytest.raises(SaveFailed, match=r"model\.w would be saved .*: there is none"):
        saving.checkpoints.finish()
    assert [kind for kind, _ in saving.told] == ["checkpoint_failed"]
    assert list(tmp_path.iterdir()) == []
