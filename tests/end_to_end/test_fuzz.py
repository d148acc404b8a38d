"""Whatever a user types or became of a file: an answer in one sentence, no other exception."""

import dataclasses
import re
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.parts.fault_files import seal
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.flags import parse_flags
from ppo.config.settings import settings_of
from ppo.errors import CheckpointError, ConfigError
from ppo.monitor import Monitor, all_callbacks
from ppo.policy.load import load_policy
from ppo.run import checkpoint
from ppo.run.resume import restore, snapshot
from tests.running import PLAIN, learn

FIELDS = [option.name for option in dataclasses.fields(Config)]
SCHEDULES = {option.name for option in dataclasses.fields(Config) if option.metadata["schedules"]}
NUMBERS = """
    nan -nan inf -inf 1e400 -1e400 -0 -0.0 +1 1 1_000 0x10 1. .5 1e3 1e5000
    None none true False auto {} [] null : a:b - --seed @file %s {0} ../.. / linear: linear:nan
    linear:1e-3 linear:-1 adaptive:0.1 linear:linear:1 cuda:99999999999999999999
"""
UNUSUAL = ["", " ", " 1 ", "\n", "\0", "cpu\n", "\x1b[31m", "\ud800", "\N{SUPERSCRIPT TWO}"]
LARGE = [str(2**63), str(2**64 + 1), "-" + "9" * 400, "9" * 5000, "{" * 3000, "[" * 100_000]
ODD = [*NUMBERS.split(), *UNUSUAL, *LARGE, '{"a": NaN}', '{"a": 1e999}', '{"a": {}}', "[[1, 2]]"]


def answer(arguments: list[str]) -> Config | str:
    """Return the Config of a command line, or the sentence that says what is wrong with it."""
    try:
        return Config(**parse_flags(arguments, Config))
    except ConfigError as error:
        return str(error)


def assert_is_one_sentence(text: str) -> None:
    assert text
    assert "Traceback" not in text
    assert not re.search(r"object at 0x|<class|NoneType", text)


@pytest.mark.slow
def test_every_odd_text_for_every_flag_is_taken_or_answered_by_its_name() -> None:
    for name in FIELDS:
        for text in ODD:
            got = answer([f"--{name}={text}"])
            if isinstance(got, str):
                assert_is_one_sentence(got)
                assert name in got
            else:
                assert_is_plain(name, getattr(got, name))


def assert_is_plain(name: str, value: Any) -> None:
    """Assert that every part of a run can use a value: numbers are finite."""
    if isinstance(value, float):
        assert value == value
        assert abs(value) < float("inf")
    elif name in SCHEDULES and isinstance(value, str) and value != "auto":
        assert 0 <= float(value.partition(":")[2]) < float("inf")


@settings(max_examples=200)
@given(
    st.sampled_from(FIELDS),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.binary(max_size=3),
        st.lists(st.integers(), max_size=2),
        st.dictionaries(st.text(max_size=2), st.floats(), max_size=2),
        st.just(object()),
        st.just(1j),
    ),
)
@example("total_steps", float("inf"))
@example("seed", 10**400)
@example("learning_rate", 10**400)
def test_any_object_for_any_field_makes_a_config_or_a_config_error_with_its_flag(
    name: str, value: Any
) -> None:
    try:
        assert_is_plain(name, getattr(Config(**{name: value}), name))
    except ConfigError as error:
        assert name in str(error)  # noqa: PT017, it may be raised or not


TENSORS = {
    "weights": torch.arange(6.0).reshape(2, 3),
    "count": torch.tensor(3),
    "mask": torch.tensor([True, False]),
}
VALUES = {"config": {"env_name": "CartPole-v1", "target_kl": None}, "step": 4096, "best": 1.5}


def assert_refused_or_whole(path: Path) -> None:
    try:
        state = checkpoint.load(path)
    except CheckpointError as error:
        assert str(path) in str(error)  # noqa: PT017, it may be raised or not
        return
    tensors = {name: state.pop(name) for name in TENSORS}
    assert state == VALUES
    for name, tensor in tensors.items():
        assert tensor.dtype == TENSORS[name].dtype
        assert torch.equal(tensor, TENSORS[name])


def test_every_flipped_bit_and_every_length_of_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint.save(path, {**TENSORS, **VALUES})
    content = path.read_bytes()
    for at in range(len(content)):
        flipped = bytes([content[at] ^ 1 << at % 8])
        path.write_bytes(content[:at] + flipped + content[at + 1 :])
        assert_refused_or_whole(path)
        path.write_bytes(content[:at])
        with pytest.raises(CheckpointError):
            checkpoint.load(path)
    for at in range(0, len(content), 50):
        for other in (content[:at] + b"x" + content[at:], content + content[at:]):
            path.write_bytes(other)
            with pytest.raises(CheckpointError):
                checkpoint.load(path)


ENTRY = b'{"__metadata__": {"state": "{}"}, "x": {"dtype": %b, "data_offsets": [0, 2]}}'
STATES = (b'"[]"', b'"null"', b'"[[1, 2]]"', b"7", b'"NaN"', b'"[[[1], 2]]"', b'"[[\\"ab\\"]]"')
HEADERS = [
    *(b"", b"{}", b"[]", b"null", b"1", b"\xff" * 20),
    b'{"__metadata__": {}}',
    b'{"__metadata__": {"state": "{}"}}',
    *(b'{"__metadata__": {"state": ' + state + b"}}" for state in STATES),
    b'{"__metadata__": {"state": "' + b"[" * 99_999 + b'"}}',
    ENTRY % b'"BF16", "shape": [1]',
    ENTRY % b'"F8_E4M3", "shape": [2]',
    ENTRY % b'"F32", "shape": [4294967296, 4294967296]',
]


def test_a_file_that_only_looks_like_a_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    files = [len(header).to_bytes(8, "little") + header + b"\0\0" for header in HEADERS]
    files += [size.to_bytes(8, "little") + b"{}" for size in (0, 1, 3, 2**60, 2**64 - 1)]
    for content in files:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="give another"):
            checkpoint.load(path)


ODD_VALUES = [None, True, -7, 1.5, 10**30, 10**400, "", "auto", "a text", [], [[1], 2], {"a": 1}]
CHANGES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda tensor: tensor.double(),
    lambda tensor: tensor.to(torch.bfloat16),
    lambda tensor: tensor.bool(),
    lambda tensor: tensor.repeat(2, *tensor.shape),
    lambda tensor: tensor.flatten()[:-1],
    lambda tensor: tensor.new_zeros(()),
]


def mutant(state: dict[str, Any], random: Random) -> dict[str, Any]:
    """Return a state with another setting, another value or tensor, or without one."""
    name = random.choice(sorted(state))
    kind = random.choice(["setting", "value", "tensor", "missing"])
    if kind == "setting":
        changed = random.choice([*sorted(state["config"]), "new"])
        return {**state, "config": {**state["config"], changed: random.choice(ODD_VALUES)}}
    if kind == "value":
        return {**state, name: random.choice([*ODD_VALUES, torch.zeros(2)])}
    if kind == "tensor":
        name = random.choice([name for name in sorted(state) if torch.is_tensor(state[name])])
        return {**state, name: random.choice(CHANGES)(state[name])}
    return {other: value for other, value in state.items() if other != name}


@pytest.mark.slow
def test_a_sealed_checkpoint_of_anything_is_used_or_refused_at_once(tmp_path: Path) -> None:
    settings = {"env_name": "CartPole-v1", "num_envs": 2, "num_steps": 8, "hidden_size": 8}
    found = settings_of(Config(**PLAIN | settings))

    def make() -> tuple[Components, Monitor]:
        parts = Components(found)
        return parts, Monitor(parts, None, all_callbacks(parts))  # type: ignore[arg-type]

    parts, monitor = make()
    with parts.make_pool() as workers:
        learn(parts, workers.collect(1))
    whole = checkpoint.copy_state(snapshot(parts, monitor))
    path = tmp_path / "checkpoint"
    seal(path, whole)
    load_policy(path)
    random = Random(0)
    refused = 0
    for _ in range(40):
        seal(path, mutant(whole, random))
        begin = time.monotonic()
        for use in (load_policy, lambda path: restore(*make(), checkpoint.load(path))):
            try:
                use(path)
            except CheckpointError as error:
                assert_is_one_sentence(str(error))
                refused += 1
        assert time.monotonic() - begin < 4
    assert 40 < refused < 80
