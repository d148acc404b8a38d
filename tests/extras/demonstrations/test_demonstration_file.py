"""The .npz file of demonstrations: what is written is read, and nothing else, however it lies."""

import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from ppo.errors import ConfigError
from ppo.extras.demonstrations import format as file_format
from ppo.extras.demonstrations.format import (
    Demonstrations,
    assemble,
    fit,
    load_demonstrations,
    read_npz,
    write_npz,
)

OBSERVATIONS = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 3), np.uint8),
        "arm": spaces.Dict({"joints": spaces.Box(-1, 1, (2,)), "grip": spaces.Discrete(2)}),
        "order": spaces.Text(5),
    }
)
ACTIONS = spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2,))))


def example(lengths: tuple[int, ...] = (3, 1)) -> Demonstrations:
    """Episodes of these lengths, all terminated but the last, which is truncated."""
    generator = np.random.default_rng(0)
    steps, rows = sum(lengths), sum(lengths) + len(lengths)
    ends = np.zeros(steps, np.bool_)
    ends[np.cumsum(lengths) - 1] = True
    last = np.arange(steps) == steps - 1
    return Demonstrations(
        observations={
            "camera": generator.integers(0, 256, (rows, 4, 3), np.uint8),
            "arm.joints": generator.random((rows, 2), np.float32),
            "arm.grip": generator.integers(0, 2, rows),
        },
        actions={
            "0": generator.integers(1, 4, steps),
            "1": generator.random((steps, 2), np.float32),
        },
        rewards=generator.random(steps),
        terminations=ends & ~last,
        truncations=last,
        action_masks={"0": generator.random((rows, 3)) < 0.9},
        seeds=np.arange(len(lengths)),
    )


def tables_of(demonstrations: Demonstrations, folder: Path) -> dict[str, np.ndarray]:
    """The tables by their names in a file."""
    write_npz(folder / "tables.npz", demonstrations)
    with np.load(folder / "tables.npz") as file:
        return dict(file)


def assert_same(one: Demonstrations, other: Demonstrations) -> None:
    for kind, content in vars(one).items():
        parts, others = (
            x if isinstance(x, dict) else {"": x} for x in (content, vars(other)[kind])
        )
        assert parts.keys() == others.keys()
        for name, table in parts.items():
            np.testing.assert_array_equal(table, others[name])
            if table is not None:
                assert table.dtype == others[name].dtype


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for number, wanted in enumerate((example(), replace(example(), rewards=None, action_masks={}))):
        path = tmp_path / f"{number}.npz"
        write_npz(path, wanted)
        found = read_npz(path)
        assert_same(found, wanted)
        assert_same(fit(found, OBSERVATIONS, ACTIONS), wanted)
        assert found.rows == [range(0, 4), range(4, 6)]


def test_a_file_that_numpy_writes_is_read(tmp_path: Path) -> None:
    """As the documentation shows it, of lists, without seeds and with other dtypes."""
    path = tmp_path / "own.npz"
    np.savez(
        path,
        observations=[[0.0], [0.5], [1.0]],
        actions=[1, 0],
        terminations=[0, 1],
        truncations=[False, False],
    )
    found = fit(read_npz(path), spaces.Box(0, 1, (1,)), spaces.Discrete(2))
    assert found.observations[""].dtype == np.float32
    assert (found.rewards, found.seeds.tolist()) == (None, [-1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"observations.camera": np.zeros((5, 4, 3), np.uint8)}, "not 6 rows"),
        ({"terminations": np.zeros(4, np.bool_), "truncations": np.zeros(4)}, "ends no episode"),
        ({"terminations": np.full(4, 2)}, "0 or 1"),
        ({"rewards": np.array([0, np.nan, 0, 0])}, "finite"),
        ({"rewards": np.full(4, 1e308)}, "its rewards are not one finite number .* as float32"),
        ({"rewards": np.zeros(3)}, "not 4 rows"),
        ({"actions.0": np.zeros(())}, "not 4 rows"),
        ({"reward": np.zeros(4)}, "it has reward"),
        ({"terminations": np.zeros(0), "truncations": np.zeros(0)}, "empty"),
    ],
)
def test_tables_that_do_not_fit_together_are_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    tables = tables_of(example(), tmp_path)
    with pytest.raises(ValueError, match=words):
        assemble(tables | change)
    with pytest.raises(ValueError, match="truncations"):
        assemble({name: table for name, table in tables.items() if name != "truncations"})


@pytest.mark.parametrize(
    ("kind", "name", "table", "words"),
    [
        ("actions", "0", np.zeros(4, np.int64), "inside of Discrete"),
        ("actions", "0", np.full(4, 1.5), "not all int64"),
        ("actions", "1", np.full((4, 2), np.nan), "not all finite"),
        ("actions", "1", np.zeros((4, 3)), "not \\(2,\\)"),
        ("observations", "camera", np.full((6, 4, 3), 256), "not all uint8"),
        ("observations", "arm.grip", np.full(6, 2), "inside of Discrete"),
        ("observations", "", np.zeros(6), "the environment has no observations"),
    ],
)
def test_demonstrations_of_other_spaces_are_refused(
    kind: str, name: str, table: np.ndarray, words: str
) -> None:
    parts = {**vars(example())[kind], name: table}
    with pytest.raises(ValueError, match=words):
        fit(replace(example(), **{kind: parts}), OBSERVATIONS, ACTIONS)
    del parts[name]
    if name in vars(example())[kind]:
        with pytest.raises(ValueError, match=f"it has no {kind}.{name}"):
            fit(replace(example(), **{kind: parts}), OBSERVATIONS, ACTIONS)


def test_observations_beyond_their_bounds_are_taken_as_in_training() -> None:
    parts = {**example().observations, "arm.joints": np.full((6, 2), 7.0)}
    found = fit(replace(example(), observations=parts), OBSERVATIONS, ACTIONS)
    assert (found.observations["arm.joints"] == np.float32(7)).all()


class Trap:
    """Notices that it is unpickled."""

    sprung = False

    def __reduce__(self) -> Any:
        return setattr, (Trap, "sprung", True)


def npy(table: Any, header: dict[str, Any] | None = None) -> bytes:
    """The bytes of an array in a file, with a header of its own."""
    file = io.BytesIO()
    if header:
        np.lib.format.write_array_header_1_0(file, header)
    else:
        np.lib.format.write_array(file, np.asarray(table))
    return file.getvalue()


def archive(path: Path, entries: dict[str, bytes], **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return path


HUGE = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (npy(np.array([Trap()], object)), "pickled"),
        (npy(np.array(["text"])), "no numbers"),
        (npy(0, HUGE), "does not have the size"),
        (npy(0, {**HUGE, "shape": (-1, -8)}) + bytes(64), "does not have the size"),
        (npy(np.zeros(3))[:-1], "does not have the size"),
        (b"", "damaged|magic"),
    ],
    ids=["pickle", "text", "huge", "negative", "cut", "empty"],
)
def test_a_hostile_entry_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", {"actions.npy": content})
    with pytest.raises(ValueError, match=words):
        read_npz(path)
    assert not Trap.sprung


def test_sizes_are_checked_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_format, "physical_memory", lambda: 4 << 20)
    unread: list[str] = []
    monkeypatch.setattr(
        file_format.npy, "read_array", lambda *arguments, **options: unread.append("read")
    )
    zeros = npy(np.zeros(1 << 20, np.uint8))  # a megabyte and a header, in a thousand bytes
    bomb = archive(tmp_path / "bomb.npz", {"actions.npy": zeros}, compression=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 4096
    with pytest.raises(ValueError, match="quarter"):
        read_npz(bomb)
    (tmp_path / "large.npz").write_bytes(bytes(1 << 21))
    with pytest.raises(OSError, match="more than"):
        read_npz(tmp_path / "large.npz")
    lying = archive(tmp_path / "lying.npz", {"actions.npy": npy(np.zeros(3))})
    content = lying.read_bytes()
    directory = content.index(b"PK\x01\x02")
    for offset in (20, 24):  # of the compressed and of the real size in the list of entries
        changed = bytearray(content)
        changed[directory + offset : directory + offset + 4] = (900_000).to_bytes(4, "little")
        lying.write_bytes(changed)
        with pytest.raises(ValueError, match="cannot have the size"):
            read_npz(lying)
    assert not unread


def test_two_entries_of_one_name_and_other_compressions_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as file:
        file.writestr("a.npy", npy(np.zeros(1)))
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a.npy", npy(np.zeros(1)))
    with pytest.raises(ValueError, match="two entries"):
        read_npz(tmp_path / "twice.npz")
    path = archive(tmp_path / "l.npz", {"a.npy": npy(0)}, compression=zipfile.ZIP_LZMA)
    with pytest.raises(ValueError, match="cannot have"):
        read_npz(path)


@settings(max_examples=300)
@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), is_cut=st.booleans())
def test_a_damaged_file_is_refused_or_reads_as_numbers(
    place: int, byte: int, is_cut: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "x.npz"
    write_npz(path, example((2,)))
    content = bytearray(path.read_bytes())
    place %= len(content)
    if is_cut:
        del content[place:]
    else:
        content[place] = byte
    path.write_bytes(content)
    try:
        found = read_npz(path)
    except (OSError, ValueError):
        return
    assert found.terminations.shape == (2,)


def test_what_is_no_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "text.npz").write_text("not a zip file")
    (tmp_path / "folder.npz").mkdir()
    for name in ("pipe", "text", "folder", "missing"):
        path = tmp_path / f"{name}.npz"
        with pytest.raises(ConfigError, match=f"--demonstrations={path} cannot be used") as caught:
            load_demonstrations(str(path))
        assert "\n" not in str(caught.value)
