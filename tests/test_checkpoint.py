"""Checkpoints: readable by safetensors alone, verifiable by their bytes alone, whole or not there."""

import ast
import hashlib
import json
import os
import struct
from pathlib import Path

import pytest
import safetensors
import torch

from ppo.run import checkpoint

ROOT = Path(checkpoint.__file__).parents[1]
SOURCES = [
    ROOT / "main.py",
    *(path for folder in ("ppo", "envs", "models") for path in (ROOT / folder).rglob("*.py")),
]
VECTOR = torch.arange(10.0, requires_grad=True)
TENSORS = {
    "weights": torch.arange(6.0).reshape(2, 3),
    "count": torch.tensor(1e-4, dtype=torch.float64),
    "step": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "first": VECTOR[:4],
    "second": VECTOR[4:].view(2, 3),
    "empty": torch.zeros(0),
}
STATE = {
    "config": {"env_name": "Mu-v0 \N{GREEK SMALL LETTER MU}", "target_kl": None},
    "step": 2**40,
    "list": [1.5, True],
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "last.safetensors"


def test_safetensors_alone_reads_what_was_saved(path):
    checkpoint.save(path, TENSORS, STATE)
    with safetensors.safe_open(path, "pt") as file:
        assert set(file.keys()) == set(TENSORS)
        for name, tensor in TENSORS.items():
            torch.testing.assert_close(file.get_tensor(name), tensor.detach(), rtol=0, atol=0)
        state = json.loads(file.metadata()["state"])
    assert state.pop("sha256")
    assert state == {"format": 4, **STATE}


def test_the_same_content_makes_the_same_bytes(tmp_path):
    for name in "abcd":
        checkpoint.save(tmp_path / name, dict(sorted(TENSORS.items(), reverse=name == "a")), STATE)
    assert len({(tmp_path / name).read_bytes() for name in "abcd"}) == 1


def test_the_sha256_is_that_of_the_bytes_in_the_file(path):
    checkpoint.save(path, TENSORS, STATE)
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


@pytest.mark.parametrize(
    ("tensors", "state"),
    [
        ({"a": torch.tensor([1.0, 3.0])}, "{}"),
        ({"b": torch.tensor([1.0, 2.0])}, "{}"),
        ({"a": torch.tensor([[1.0, 2.0]])}, "{}"),
        ({"a": torch.tensor([1.0, 2.0]).view(torch.int32)}, "{}"),
        ({"a": torch.tensor([1.0, 2.0])}, '{"step": 1}'),
    ],
    ids=["number", "name", "shape", "dtype", "state"],
)
def test_the_digest_notices_any_other(tensors, state):
    assert checkpoint.digest(tensors, state) != checkpoint.digest(
        {"a": torch.tensor([1.0, 2.0])}, "{}"
    )


def test_nothing_but_the_newest_checkpoint_is_left(path):
    for step in range(2):
        checkpoint.save(path, TENSORS, {"step": step})
    assert list(path.parent.iterdir()) == [path]
    with safetensors.safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["state"])["step"] == 1


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_checkpoint_and_nothing_else(path, monkeypatch, failing):
    def fail(*_):
        raise OSError("no space left on device")

    checkpoint.save(path, TENSORS, STATE)
    before = path.read_bytes()
    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[failing], fail)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save(path, {"weights": torch.zeros(2)}, {"step": 2})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


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
        if {
            "pickle",
            "cloudpickle",
            "dill",
            "joblib",
            "marshal",
            "shelve",
            "torch.save",
            "torch.load",
        } & set(names):
            return True
    return False


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "torch.save(x)",
        "f = torch.load",
        "from torch import load",
    ],
)
def test_code_that_could_unpickle_is_noticed(source):
    assert runs_code_when_read(source)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(ROOT)))
def test_no_module_can_unpickle_a_file(source):
    assert not runs_code_when_read(source.read_text())
