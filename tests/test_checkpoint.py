"""Checkpoints: readable by safetensors alone, whole or not there."""

import json

import numpy as np
import pytest
import safetensors
import torch

from ppo.checkpoint import copied, load, save, save_next
from ppo.errors import CheckpointError

TENSORS = {
    "weights": torch.arange(6.0).reshape(2, 3),
    "count": torch.tensor(1e-4, dtype=torch.float64),
    "mask": torch.tensor([True, False]),
    "part": torch.arange(10.0)[4:].view(2, 3),
    "empty": torch.zeros(0),
    "backwards": torch.from_numpy(np.arange(4.0)[::-1].copy()),
}
VALUES = {"config": {"env_name": "Mu-v0 \N{GREEK SMALL LETTER MU}", "kl": None}, "step": 2**40}


def test_safetensors_alone_reads_what_was_saved(tmp_path):
    state = {**TENSORS, **VALUES, "backwards": np.arange(4.0)[::-1]}
    save(tmp_path / "state", copied(state))
    with safetensors.safe_open(tmp_path / "state", "pt") as file:
        assert {*file.keys()} == {*TENSORS}
        for name, tensor in TENSORS.items():
            assert torch.equal(file.get_tensor(name), tensor)
        assert json.loads(file.metadata()["values"]) == VALUES
    found = load(tmp_path / "state")
    assert found.keys() == state.keys()
    assert {name: found[name] for name in VALUES} == VALUES


def test_the_last_three_and_the_best_checkpoints_stay(tmp_path):
    for step in range(1, 7):
        save_next(tmp_path, {"step": step}, is_best=step == 2)
    assert load(tmp_path / "last.safetensors") == {"step": 6}
    assert load(tmp_path / "best.safetensors") == {"step": 2}
    names = [f"{step:012}.safetensors" for step in (4, 5, 6)]
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        *names,
        "best.safetensors",
        "last.safetensors",
    ]
    save_next(tmp_path, {"step": 3}, is_best=False)  # after an older state has been resumed
    assert load(tmp_path / "000000000003.safetensors") == {"step": 3}


def test_what_is_no_whole_checkpoint_is_refused(tmp_path):
    path = tmp_path / "state"
    save(path, copied({**TENSORS, **VALUES}))
    content = path.read_bytes()
    torch.save({"step": 1}, tmp_path / "pickle")
    for other in (*(content[:x] for x in range(0, len(content), 50)), b"x" * 99, content + b"x"):
        path.write_bytes(other)
        with pytest.raises(CheckpointError):
            load(path)
    for missing in (tmp_path / "pickle", tmp_path / "nothing", tmp_path):
        with pytest.raises(CheckpointError):
            load(missing)
