"""Files that a crash or a full disk never leaves half-written."""

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
    """Append whole pieces of text to a file. What a full disk refuses stays in memory for the next
    call."""

    waiting = b""

    def __init__(self, path: Path) -> None:
        self.file = path.open("ab", buffering=0)

    def append(self, text: str) -> OSError | None:
        """Write a text after all that still waits. Returns the error if something could not be
        written, or if the file has been removed."""
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
    """Yield a temporary file in the same folder that replaces path on success. After an error path
    is unchanged."""
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        temporary.unlink(missing_ok=True)  # which a killed process may have left
        yield temporary
        temporary.replace(path)
    finally:
        with suppress(OSError):  # on a read-only disk there is nothing to remove either
            temporary.unlink(missing_ok=True)


def read_json(path: Path, default):
    """Return a file's content, or the default if it is damaged or of another type."""
    with suppress(OSError, ValueError):
        content = json.loads(path.read_text())
        if isinstance(content, type(default)):
            return content
    return default


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines, if there is one; torn lines are left out."""
    lines: list[str] = []
    with suppress(OSError):
        lines = path.read_text(errors="replace").splitlines()
    for line in lines:
        with suppress(ValueError):
            content = json.loads(line)
            if isinstance(content, dict):
                yield content


def write_json(path: Path, content) -> None:
    """Write a JSON file as a whole; after an error the old file is unchanged."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")


def lock_file(path: Path, wait: bool = False) -> FileIO:
    """Lock a file, made if it is missing, and return it open: closing it, be it by the death of
    this process, unlocks it. Raises BlockingIOError, unless it is to wait, if it is locked."""
    file = path.open("ab", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        file.close()
        raise
    return file


def folder_name(text: str) -> str:
    """Replace the characters of a text that do not belong in the name of a folder."""
    return re.sub(r"[^\w.=+-]+", "-", text)
