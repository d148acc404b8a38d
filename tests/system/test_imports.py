"""Import paths that users give."""

import math
import sys
from pathlib import Path

import pytest

from ppo.errors import ConfigError
from ppo.models.errors import ModelMismatch
from ppo.system import imports
from ppo.system.imports import import_named


def test_what_a_flag_names_is_imported() -> None:
    assert import_named("learner", "math:sqrt") is math.sqrt


@pytest.mark.parametrize("path", ["nowhere:Class", "math:nothing"])
def test_what_cannot_be_imported_is_named_with_its_flag(path: str) -> None:
    with pytest.raises(ConfigError, match=f"--learner={path} cannot be imported .*module:Name"):
        import_named("learner", path)
    with pytest.raises(ModelMismatch, match=f"--model={path}"):
        import_named("model", path, ModelMismatch)


def test_a_file_is_imported_and_its_neighbours_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "neighbour_of_file.py").write_text("size = 3")
    (tmp_path / "some_file.py").write_text("from neighbour_of_file import size")
    assert import_named("model", f"{tmp_path}/some_file.py:size") == 3
    monkeypatch.chdir(tmp_path)
    assert import_named("model", "some_file.py:size") == 3
    with pytest.raises(ConfigError, match=r"some_file.py has no sise, did you mean size"):
        import_named("model", "some_file.py:sise")
    with pytest.raises(ConfigError, match=r"there is no file sum_file.py"):
        import_named("model", "sum_file.py:size")


def test_a_file_named_as_another_module_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "math.py").write_text("size = 3")
    with pytest.raises(ConfigError, match=r"another module is called math, so rename math.py"):
        import_named("model", f"{tmp_path}/math.py:size")


@pytest.mark.parametrize(
    ("place", "is_there", "what"),
    [
        ("", True, "-e '.[report]'"),
        ("", False, "-e '{clone}[report]'"),
        ("site-packages", False, "'ppo-trainer[report]'"),
    ],
)
def test_a_missing_package_is_answered_by_what_installs_it_in_a_clone_and_elsewhere(
    place: str, is_there: bool, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "setup.cfg").touch()
    if is_there:
        monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(imports, "__file__", str(tmp_path / place / "ppo/system/imports.py"))
    with pytest.raises(ConfigError) as caught, imports.extra("report"):
        raise ImportError("No module named matplotlib")
    install = what.format(clone=tmp_path)
    assert str(caught.value) == f"No module named matplotlib: pip install {install}"
