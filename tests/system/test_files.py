"""Files are written completely or not at all."""

import subprocess
import sys
from pathlib import Path

import pytest

from ppo.errors import ConfigError
from ppo.system.files import (
    atomic_write,
    check_folder,
    folder_name,
    new_file,
)
from tests.running import ROOT

LIMITED = """
import resource, signal, sys
from pathlib import Path
from ppo.system.files import AppendedFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = AppendedFile(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (25, resource.RLIM_INFINITY))
errors = [file.append(f"line {i:04d}\\n") for i in range(6)]
assert errors[:2] == [None, None], errors
assert all(isinstance(error, OSError) for error in errors[2:]), errors
assert Path(sys.argv[1]).stat().st_size == 25
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert file.append("line 0006\\n") is None
file.close()
"""


def test_text_that_a_full_disk_refused_is_written_once_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "events"
    subprocess.run([sys.executable, "-c", LIMITED, str(path)], cwd=ROOT, check=True)
    assert path.read_text() == "".join(f"line {i:04d}\n" for i in range(7))


def test_an_atomic_write_replaces_the_file_only_on_success(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ValueError, match="stop"), atomic_write(path) as temporary:  # noqa: PT012
        assert temporary.parent == tmp_path
        temporary.write_text("half")
        raise ValueError("stop")
    assert path.read_text() == "old"
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a/b c:d", "a-b-c-d"),
        ("x=1.5+y", "x=1.5+y"),
        ("<MyEnv>-s0", "MyEnv-s0"),
        ("/home/me/env.py:MyEnv", "home-me-env.py-MyEnv"),
        ("--resume", "resume"),
        ("..", "run"),
        ("<>/", "run"),
    ],
)
def test_a_folder_name_has_no_separators_and_is_no_flag(text: str, name: str) -> None:
    assert folder_name(text) == name


def test_two_processes_that_write_a_file_at_once_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(FileExistsError), atomic_write(path, is_new=True) as late:  # noqa: PT012
        late.write_text("late")
        with atomic_write(path, is_new=True) as early:
            early.write_text("early")
    assert path.read_text() == "early"


def test_a_new_file_has_a_folder_and_a_known_suffix(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "out.mp4"
    assert new_file("--video=", path, (".mp4", ".gif")) == path
    assert path.parent.is_dir()
    with pytest.raises(ConfigError, match=r"--video=out.avi: give a name that ends with .mp4 or"):
        new_file("--video=", "out.avi", (".mp4", ".gif"))
    path.touch()
    with pytest.raises(ConfigError, match=r"out\.mp4 is there already, and nothing is overwritten"):
        new_file("--video=", path, (".mp4",))


def test_a_folder_that_cannot_be_made_is_said_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written to \(.*\): give another name"):
        check_folder("--output=", tmp_path / "file" / "page.html")


def test_a_read_only_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="its folder is read-only"):
        check_folder("--output=", tmp_path / "page.html")
