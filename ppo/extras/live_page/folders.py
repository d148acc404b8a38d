"""Find runs, and read what is new in their folders, whose files are untrusted."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple
from zlib import crc32

from ppo.run.folder import EVENTS, is_running
from ppo.run.reader import COUNTED, METRICS, label_of
from ppo.system.files import MAX_NUMBER, open_regular, parse_json, read_json
from ppo.system.output import shorten

MAX_DEPTH = 3  # of runs in a folder: those of ppo tune are two below it
MAX_ROWS = 2000  # in an answer: of more, evenly chosen ones
MAX_EVENTS = 20  # the newest
MAX_BYTES = 1 << 22  # of metrics.csv that an answer is about
MAX_HEADER_BYTES = 1 << 16
MAX_EVENT_BYTES = 1 << 18  # of events.jsonl, at its end
MAX_VIDEO_BYTES = 1 << 26
VIDEO = re.compile(r"(0|[1-9][0-9]{0,17})\.mp4")  # named by the step
Answer = dict[str, Any]  # as JSON can hold it


def find_runs(folder: Path, depth: int = MAX_DEPTH) -> Iterator[Path]:
    """Yield the folders of the runs in a folder, or itself if it is that of a run, whether or not
    they have finished an iteration. No links are followed inside."""
    if os.path.lexists(folder / "config.json"):
        yield folder
    elif depth:
        names: list[str] = []
        with suppress(OSError), os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in sorted(names, key=lambda name: (len(name), name)):  # s2 before s10
            yield from find_runs(folder / name, depth - 1)


class Known(NamedTuple):
    """What a page knows of a run, which it sends as a text: which metrics.csv it has read, up to
    which byte, and how large events.jsonl was."""

    table: int = 0
    offset: int = 0
    events: int = 0

    @classmethod
    def parse(cls, text: str) -> "Known | None":
        """Return what a text stands for; None if a page has not written it."""
        is_own = re.fullmatch(r"\d{1,20}-\d{1,20}-\d{1,20}", text, re.ASCII)
        return cls(*map(int, text.split("-"))) if is_own else None

    def __str__(self) -> str:
        return "-".join(map(str, self))


class WatchedRun:
    """A run that a page shows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.idle_since: int | None = None  # the time of the lock that was found to be free

    def news(self, text: str) -> Answer:
        """Return what is new since a page has last asked, with what it knows then. text: what it
        knows now."""
        known = Known.parse(text)
        answer: Answer = {"training": self.is_training(), "video": newest_video(self.folder)}
        if known is None:
            known = Known()
            env_name = str(read_json(self.folder / "config.json").get("env_name", "")).strip("<>")
            answer |= {"name": label_of(self.folder), "environment": shorten(env_name)}
        try:
            known = read_rows(self.folder / METRICS, known, answer)
        except FileNotFoundError:
            pass  # the run has not finished an iteration
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            answer["problem"] = f"{METRICS} cannot be read ({reason})"
        with suppress(OSError):
            known = read_events(self.folder / EVENTS, known, answer)
        return {**answer, "known": str(known)}

    def is_training(self) -> bool:
        """Return whether a process trains the run. A lock that is free is tried only once, since
        meanwhile, for some microseconds, no process could begin to train the run."""
        since = 0
        with suppress(OSError):
            since = os.stat(self.folder / "lock").st_mtime_ns  # a process that locks it, writes it
        if since != self.idle_since and not is_running(self.folder):
            self.idle_since = since
        return since != self.idle_since


def read_rows(path: Path, known: Known, answer: Answer) -> Known:
    """Add new rows of metrics.csv to an answer: values, or None where there is none; "names" of the
    columns if the page must forget rows that it has; "more" if there are more already. Return what
    the page knows then. Raises OSError and ValueError."""
    with open_regular(path) as file:
        header = file.readline(MAX_HEADER_BYTES)
        names = header.decode(errors="replace").rstrip("\n").split(",")
        if not header.endswith(b"\n") or not COUNTED.keys() <= {*names}:
            raise ValueError("it begins with another line than its header")
        about = os.fstat(file.fileno())
        table = crc32(header, about.st_ino & 0xFFFFFFFF)  # a resumed run, or a new name, replace it
        if known.table != table or not len(header) <= known.offset <= about.st_size:
            known = known._replace(table=table, offset=len(header))
            answer["names"] = names
        file.seek(known.offset)
        content = file.read(MAX_BYTES)
    answer["more"] = len(content) == MAX_BYTES
    end = content.rfind(b"\n") + 1 or (answer["more"] and MAX_BYTES)  # no row is as long
    lines = content[:end].split(b"\n")[:-1]
    chosen = lines[:: -max(1, -(-len(lines) // MAX_ROWS))][::-1]  # with the newest
    rows = [parse_row(names, line) for line in chosen]
    answer["rows"] = [row for row in rows if row]
    if None in rows:
        answer["problem"] = f"{METRICS} has lines that are not rows of numbers: they are left out"
    return known._replace(offset=known.offset + end)


def parse_row(names: list[str], line: bytes) -> list[float | None] | None:
    """Return the values of a line of metrics.csv, None for those that are missing or not finite;
    None if it is not a row."""
    try:
        values = [float(text or "nan") for text in line.decode(errors="replace").split(",")]
        row = dict(zip(names, values, strict=True))
        is_row = all(0 <= row[name] < limit for name, limit in COUNTED.items())
    except ValueError:
        return None
    return [x if abs(x) <= MAX_NUMBER else None for x in values] if is_row else None


def read_events(path: Path, known: Known, answer: Answer) -> Known:
    """Add the newest events of a run to an answer, the newest first, if there is a new one. Return
    what the page knows then. Raises OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size == known.events:
            return known
        file.seek(max(0, size - MAX_EVENT_BYTES))
        lines = file.read(MAX_EVENT_BYTES).split(b"\n")
    events: list[dict[str, str]] = []
    for line in reversed(lines):
        with suppress(ValueError):
            event = parse_json(line)
            if isinstance(event, dict) and len(events) < MAX_EVENTS:
                texts = {name: event.get(name) or "" for name in ("time", "kind", "message")}
                events.append({name: shorten(str(text)) for name, text in texts.items()})
    answer["events"] = events
    return known._replace(events=size)


def newest_video(folder: Path) -> int | None:
    """Return the step of a run's newest video; None if there is none."""
    names: list[str] = []
    with suppress(OSError), open_videos(folder) as videos, os.scandir(videos) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    return max((int(name[:-4]) for name in names if VIDEO.fullmatch(name)), default=None)


def read_video(folder: Path, step: int) -> bytes:
    """Return the content of a run's video. Raises OSError, also if it is large, or no regular file
    of the run's own folder."""
    with (
        open_videos(folder) as videos,
        FileIO(f"{step}.mp4", opener=lambda path, flags: open_own(path, flags, videos)) as file,
    ):
        about = os.fstat(file.fileno())
        if not S_ISREG(about.st_mode) or about.st_size > MAX_VIDEO_BYTES:
            raise OSError("it is no video to be shown")
        return file.read(MAX_VIDEO_BYTES)


@contextmanager
def open_videos(folder: Path) -> Iterator[int]:
    """Open a run's folder of videos, which is its own: no link. Raises OSError."""
    descriptor = open_own(str(folder / "videos"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_own(path: str, flags: int, folder: int | None = None) -> int:
    """Open what is no link, at once. folder: a descriptor. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
