"""Files whose content survives a crash or a full disk: replaced atomically, or only appended to."""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp-"  # begins the names of files that are being written


class AppendedFile:
    """Append texts to a file. What cannot be written, to a full disk for instance, stays in memory
    until the next call."""

    waiting = b""

    def __init__(self, path: Path) -> None:
        self.file = path.open("ab", buffering=0)

    def append(self, text: str) -> OSError | None:
        """Write what is still in memory, then a text. Return the error if something could not be
        written or the file has been removed, else None."""
        self.waiting += text.encode()
        try:
            while self.waiting:
                written = self.file.write(self.waiting)
                self.waiting = self.waiting[written:]
            if os.fstat(self.file.fileno()).st_nlink == 0:
                raise FileNotFoundError("it has been removed")
        except OSError as error:
            return error
        return None

    def close(self) -> None:
        self.file.close()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file in the same folder, which replaces path on success; after
    an error path is unchanged. Raises OSError."""
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        temporary.unlink(missing_ok=True)  # a killed process may have left it
        yield temporary
        temporary.replace(path)
    finally:
        with suppress(OSError):  # on a read-only disk there is nothing to remove either
            temporary.unlink(missing_ok=True)


def read_json(path: Path, default):
    """Return the content of a JSON file, or the default if the file is missing or damaged, or its
    content is not of the default's type."""
    with suppress(OSError, ValueError):
        content = json.loads(path.read_text())
        if isinstance(content, type(default)):
            return content
    return default


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines, none if it cannot be read; skip damaged lines."""
    lines: list[str] = []
    with suppress(OSError):
        lines = path.read_text(errors="replace").splitlines()
    for line in lines:
        with suppress(ValueError):
            content = json.loads(line)
            if isinstance(content, dict):
                yield content


def write_json(path: Path, content) -> None:
    """Write a JSON file atomically; after an error the old file is unchanged. Raises OSError."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")


def lock_file(path: Path, wait: bool = False) -> FileIO:
    """Lock a file, created if it is missing, and return it open; closing it, or the end of this
    process, unlocks it. If it is locked, wait, or raise BlockingIOError if wait is False."""
    file = path.open("ab", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        file.close()
        raise
    return file


def folder_name(text: str) -> str:
    """Return a text with "-" in place of characters that do not belong in a folder's name."""
    return re.sub(r"[^\w.=+-]+", "-", text)
