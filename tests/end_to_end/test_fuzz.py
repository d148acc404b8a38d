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
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchmarks.parts.fault_files import seal
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.flags import allowed_values, parse_flags
from ppo.config.settings import settings_of
from ppo.errors import CheckpointError, ConfigError
from ppo.monitor import Monitor, all_callbacks
from ppo.policy.load import load_policy
from ppo.run import checkpoint
from ppo.run.resume import restore, snapshot
from tests.running import PLAIN, learn

FIELDS = [option.name for option in dataclasses.fields(Config)]
NAMES = {
    option.name: [option.name, *option.metadata["aliases"]] for option in dataclasses.fields(Config)
}
SCHEDULES = {option.name for option in dataclasses.fields(Config) if option.metadata["schedules"]}
WORDS = sorted(
    {word for option in dataclasses.fields(Config) for word in allowed_values(option)[1]}
)
ODD = [
    "nan",
    "-nan",
    "inf",
    "-inf",
    "1e400",
    "-1e400",
    "-0",
    "-0.0",
    "+1",
    "1_000",
    " 1 ",
    "0x10",
    "1.",
    ".5",
    "1e3",
    "",
    " ",
    "\n",
    "\0",
    "\x1b[31m",
    "\ud800",
    "\N{ARABIC-INDIC DIGIT ONE}",
    "\N{SUPERSCRIPT TWO}",
    "\N{VULGAR FRACTION ONE HALF}",
    "9" * 5000,
    "1e5000",
    "-" + "9" * 400,
    str(2**63),
    str(2**64 + 1),
    "None",
    "none",
    "NONE",
    "true",
    "False",
    "auto",
    "{}",
    "[]",
    "null",
    "1",
    '{"a": NaN}',
    '{"a": 1e999}',
    "{" * 3000,
    "[" * 100_000,
    '{"a": {}}',
    '"a"',
    "[[1, 2]]",
    "linear:",
    "linear:nan",
    "linear:1e-3",
    "linear:-1",
    "adaptive:0.1",
    "linear:linear:1",
    ":",
    "a:b",
    "--seed",
    "-",
    "cuda:99999999999999999999",
    "cpu\n",
    "../..",
    "/",
    "@file",
    "%s",
    "%(dest)s",
    "{0}",
]
TEXTS = (
    st.sampled_from([*ODD, *WORDS])
    | st.text(max_size=12)
    | st.integers().map(str)
    | st.floats().map(repr)
    | st.builds(
        "{}{}".format, st.sampled_from(["linear:", "adaptive:", "cuda:"]), st.floats().map(repr)
    )
)
SETTINGS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}


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


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", FIELDS)
def test_every_odd_text_for_every_flag_is_taken_or_answered_by_its_name(name: str) -> None:
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


@pytest.mark.slow
@settings(max_examples=400, **SETTINGS)
@given(st.lists(st.tuples(st.sampled_from(FIELDS), st.booleans(), TEXTS), max_size=5), st.randoms())
def test_any_values_of_any_flags_make_a_config_or_one_sentence_with_a_flag(
    given_flags: list, random: Any
) -> None:
    arguments: list[str] = []
    for name, is_apart, text in given_flags:
        spelled = random.choice(NAMES[name])
        arguments += [f"--{spelled}", text] if is_apart else [f"--{spelled}={text}"]
    if any(re.match("-(h|-help)", text) for text in arguments):
        return  # that prints the help
    got = answer(arguments)
    if isinstance(got, str):
        assert_is_one_sentence(got)
        spellings = {"--config", *(spelling for names in NAMES.values() for spelling in names)}
        assert any(spelling in got for spelling in spellings) or "flag" in got
    else:
        for name in FIELDS:
            assert_is_plain(name, getattr(got, name))
        assert got.rollout_size * got.iterations <= got.total_steps
        assert 0 <= got.seed < 2**32


@settings(max_examples=200, **SETTINGS)
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


@st.composite
def damages(draw: st.DrawFn) -> list[tuple]:
    """Draw damages to a file's bytes, in order."""
    where = st.floats(0, 1, exclude_max=True)
    kinds = st.one_of(
        st.tuples(st.just("flip"), where, st.integers(0, 7)),
        st.tuples(st.just("cut"), where),
        st.tuples(st.just("splice"), where, where, where),
        st.tuples(st.just("remove"), where, where),
        st.tuples(st.just("insert"), where, st.binary(min_size=1, max_size=9)),
        st.tuples(st.just("replace"), where, st.binary(min_size=1, max_size=9)),
        st.tuples(st.just("prepend"), st.binary(max_size=9)),
        st.tuples(st.just("append"), st.binary(max_size=9)),
        st.tuples(st.just("header size"), st.integers(0, 2**64 - 1) | st.integers(0, 2000)),
    )
    return draw(st.lists(kinds, min_size=1, max_size=3))


def damaged(content: bytes, damage: tuple) -> bytes:
    kind, *details = damage
    if kind in ("prepend", "append"):
        return details[0] + content if kind == "prepend" else content + details[0]
    if kind == "header size":
        return int(details[0]).to_bytes(8, "little") + content[8:]
    at = int(details[0] * len(content))
    if kind == "flip":
        return (
            content[:at]
            + bytes(byte ^ 1 << details[1] for byte in content[at : at + 1])
            + content[at + 1 :]
        )
    if kind == "cut":
        return content[:at]
    if kind == "splice":
        first, last = sorted(int(share * len(content)) for share in details[1:])
        return content[:at] + content[first:last] + content[at:]
    if kind == "remove":
        first, last = sorted(int(share * len(content)) for share in details)
        return content[:first] + content[last:]
    return content[:at] + details[1] + content[at + (len(details[1]) if kind == "replace" else 0) :]


@pytest.mark.slow
@settings(max_examples=300, **SETTINGS)
@given(damage=damages())
def test_a_damaged_checkpoint_is_refused_or_holds_what_was_saved(
    damage: list[tuple], tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    if not (tmp_path / "whole").exists():
        checkpoint.save(tmp_path / "whole", {**TENSORS, **VALUES})
    content = (tmp_path / "whole").read_bytes()
    for step in damage:
        content = damaged(content, step)
    path.write_bytes(content)
    assert_refused_or_whole(path)


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
        path.write_bytes(damaged(content, ("flip", (at + 0.5) / len(content), at % 8)))
        assert_refused_or_whole(path)
        path.write_bytes(content[:at])
        with pytest.raises(CheckpointError):
            checkpoint.load(path)


HEADERS = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"1",
    b'{"__metadata__": {}}',
    b'{"__metadata__": {"state": "{}"}}',
    b"\xff" * 20,
    *(
        b'{"__metadata__": {"state": ' + state + b"}}"
        for state in (b'"[]"', b'"1"', b'"null"', b'"[[1, 2]]"', b"7")
    ),
    *(
        b'{"__metadata__": {"state": "' + state + b'"}}'
        for state in (b"[" * 99_999, b"NaN", b"[[[1], 2]]", b'[\\"ab\\"]')
    ),
    *(
        b'{"__metadata__": {"state": "{}"}, "x": {' + x + b', "data_offsets": [0, 2]}}'
        for x in (
            b'"dtype": "BF16", "shape": [1]',
            b'"dtype": "F8_E4M3", "shape": [2]',
            b'"dtype": "F32", "shape": [4294967296, 4294967296]',
        )
    ),
]


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header[:99].decode(errors="replace"))
def test_a_file_that_only_looks_like_a_checkpoint_is_refused(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
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
