"""What several commands share, and checks of files that are to be written."""

from pathlib import Path

import pytest

from ppo.commands.policy_flags import folder_of, interval_text
from ppo.errors import ConfigError
from ppo.system.files import check_folder, new_file


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


def test_a_checkpoint_belongs_to_the_folder_with_its_config(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "last.safetensors"
    assert folder_of(checkpoint) == tmp_path / "checkpoints"
    (tmp_path / "config.json").touch()
    assert folder_of(checkpoint) == tmp_path


def test_an_interval_is_said_if_there_is_one() -> None:
    assert interval_text(None) == ""
    assert interval_text((1.26, 3)) == " (95 % interval 1.3 to 3.0)"
