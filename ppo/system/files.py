"""Files whose content survives a crash or a full disk: replaced atomically, or only appended to.

What is read is untrusted: nothing here waits for a pipe, reads a device, or takes
memory without bound.
"""

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from secrets import token_hex
from stat import S_ISREG
from typing import Any

from ppo.errors import ConfigError

TEMPORARY = ".tmp-"  # begins the names of files that are being written
MAX_JSON_BYTES = 32 << 20  # in a file or in a line
MAX_FILE_BYTES = 1 << 30  # of a file of lines
MAX_DEPTH = 50  # of nested JSON
MAX_NUMBER = 1e300  # so that the sum of many is finite


class AppendedFile:
    """Append texts to a file. What cannot be written, to a full disk for instance, stays in memory
    until the next call."""

    def __init__(self, path: Path) -> None:
        self.waiting = b""
        self.file = FileIO(path, "a", opener=_open_regular)

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
def atomic_write(path: Path, is_new: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file in the same folder, which no other process has, and which
    replaces path on success; after an error path is unchanged. is_new: nothing is replaced. Raises
    OSError, FileExistsError for a new file that another process has made meanwhile."""
    temporary = path.with_name(f"{TEMPORARY}{token_hex(4)}-{path.name}")
    try:
        yield temporary
        if is_new:
            _place(temporary, path)
        else:
            temporary.replace(path)
    finally:
        with suppress(OSError):  # on a read-only disk there is nothing to remove either
            temporary.unlink(missing_ok=True)


def _place(temporary: Path, path: Path) -> None:
    """Give a temporary file a name that nothing has. Raises FileExistsError."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # the file system has no links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.replace(path)


def link_or_copy(path: Path, target: Path) -> None:
    """Make a new path a symbolic link to a file in the same folder, or a copy of the file where the
    file system has no such links. Raises OSError."""
    try:
        path.symlink_to(target.name)
    except OSError:
        shutil.copyfile(target, path)


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove what killed processes have left of files that they were writing in a folder, of one
    name or of all, as far as that can be. No other process may be writing them."""
    with suppress(OSError):
        for leftover in folder.glob(f"{TEMPORARY}*{name}"):
            leftover.unlink()


class NotRegular(OSError):
    """What is in the place of a file is a folder, a pipe, a device or, to write, a link."""


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file at once, as an opener of open; to write, none that a link leads to, which
    could be anywhere. Raises NotRegular or another OSError."""
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    with suppress(FileNotFoundError):  # it may be created
        if not S_ISREG(os.stat(path, follow_symlinks=not writes).st_mode):
            raise NotRegular(f"{os.path.basename(path)} is not a regular file")
    flags |= os.O_NONBLOCK | (os.O_NOFOLLOW if writes else 0)  # a pipe may have taken its place
    descriptor = os.open(path, flags, 0o666)
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(f"{os.path.basename(path)} is not a regular file")
    return descriptor


def open_regular(path: Path, max_bytes: int = MAX_FILE_BYTES) -> BufferedReader:
    """Open a file to read bytes. Raises OSError, also if it is a pipe, a folder or a device, or has
    more than max_bytes."""
    file = FileIO(path, opener=_open_regular)
    if os.fstat(file.fileno()).st_size > max_bytes:
        file.close()
        raise OSError(f"{path.name} has more than {max_bytes:,} bytes")
    return BufferedReader(file)


def read_bytes(path: Path, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Return the content of a file. Raises OSError, also if it is not a regular file or has more
    than max_bytes."""
    with open_regular(path, max_bytes) as file:
        return file.read(max_bytes)  # it may be growing


def parse_json(text: bytes | str) -> Any:
    """Return the content of JSON.

    Raises ValueError if it is not JSON, is nested deeper than MAX_DEPTH, or has a number beyond
    MAX_NUMBER or a text without a UTF-8 form."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    _check_json(content, 0)
    return content


def _check_json(content: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deep")
    if isinstance(content, str):
        content.encode()
    elif isinstance(content, (int, float)):
        if not abs(content) <= MAX_NUMBER:  # nor NaN
            raise ValueError(f"it has a number that is not within {MAX_NUMBER:g}")
    elif isinstance(content, list):
        for part in content:
            _check_json(part, depth + 1)
    elif isinstance(content, dict):
        for name, part in content.items():
            name.encode()
            _check_json(part, depth + 1)


def load_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises OSError if it cannot be read or is not a regular
    file, ValueError if it is damaged."""
    return parse_json(read_bytes(path))


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or {} if the file is missing or damaged, or holds another
    kind of value."""
    with suppress(OSError, ValueError):
        content = load_json(path)
        if isinstance(content, dict):
            return content
    return {}


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines, none if it cannot be read; skip damaged lines."""
    with suppress(OSError), open_regular(path) as file:
        while line := file.readline(MAX_JSON_BYTES):
            with suppress(ValueError):
                content = parse_json(line)
                if isinstance(content, dict):
                    yield content


def write_json(path: Path, content: Any, is_new: bool = False) -> None:
    """Write a JSON file atomically; after an error the old file is unchanged. is_new: of
    atomic_write, as which it raises."""
    with atomic_write(path, is_new) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")


def lock_file(path: Path, wait: bool = False) -> FileIO:
    """Lock a file, created if it is missing, and return it open; closing it, or the end of this
    process, unlocks it. If it is locked, wait, or raise BlockingIOError if wait is False. Raises
    OSError if it is not a regular file, or on a file system without locks."""
    file = FileIO(path, "a", opener=_open_regular)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        file.close()
        raise
    except OSError as error:
        file.close()
        raise OSError(error.errno, f"its file system has no locks: {error.strerror}") from error
    return file


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process is in this context for a file, which is read and then replaced in
    it. Raises OSError."""
    name = path.with_name(f"{TEMPORARY}lock-{path.name}")
    while True:
        with lock_file(name, wait=True) as lock:
            if _is_at(lock, name):  # else the process before has removed it
                try:
                    yield
                finally:
                    name.unlink()
                return


def _is_at(file: FileIO, path: Path) -> bool:
    """Return whether a path leads to an open file."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    return False


def new_file(flag: str, path: str | Path, suffixes: Sequence[str]) -> Path:
    """Return the path of a file to be written, after making its folder.

    flag: begins error messages, such as "--output=". Raises ConfigError if the file exists or has
    another suffix, or if its folder is read-only or cannot be made.
    """
    path = Path(path)
    if path.suffix not in suffixes:
        raise ConfigError(f"{flag}{path}: give a name that ends with {' or '.join(suffixes)}")
    if path.exists():
        raise ConfigError(
            f"{flag}{path} is there already, and nothing is overwritten: give another name"
        )
    return check_folder(flag, path)


def check_folder(flag: str, path: Path) -> Path:
    """Make the folder of a file; return the file's path. Raises ConfigError if nothing can be
    written there."""
    problem = "its folder is read-only"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            problem = "it is a folder"
        elif os.access(path.parent, os.W_OK):
            return path
    except OSError as error:
        problem = str(error.strerror)
    raise ConfigError(f"{flag}{path} cannot be written to ({problem}): give another name")


def folder_name(text: str) -> str:
    """Return a text as a folder's name: "-" stands for characters that do not belong there, and
    there is neither one at the beginning, where a command would take it for a flag, nor a "."."""
    return re.sub(r"[^\w.=+-]+", "-", re.sub("[<>]", "", text)).lstrip("-.") or "run"
