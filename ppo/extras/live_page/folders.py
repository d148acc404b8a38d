"""Find runs, and read what is new in their folders, whose files are untrusted."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from ppo.run.folder import EVENTS, is_running
from ppo.run.reader import COUNTED, METRICS, label_of
from ppo.system.files import MAX_NUMBER, open_regular, parse_json, read_json
from ppo.system.output import shorten

MAX_DEPTH = 3  # of runs in a folder: those of ppo tune are two below it
MAX_EVENTS = 20  # the newest
MAX_BYTES = 1 << 20  # of metrics.csv that an answer is about
MAX_HEADER_BYTES = 1 << 16
MAX_EVENT_BYTES = 1 << 18  # of events.jsonl, at its end
VIDEO = re.compile(r"[0-9]{1,18}\.mp4")  # named by the step
PLACE: Any = {"table": int, "offset": int, "size": int}  # as ppo.run.reader.misfit takes it
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


def begun(folder: Path) -> float:
    """Return when a run was begun, or resumed last, in seconds; 0 if it has gone."""
    with suppress(OSError):
        return os.lstat(folder / "config.json").st_mtime
    return 0.0


class WatchedRun:
    """A run that a page shows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.idle_since: int | None = None  # the time of the lock that was found to be free

    def news(self, place: Mapping[str, int]) -> Answer:
        """Return what is new since a page has last asked. place: how far it has read, PLACE of the
        last answer, {} at first: which metrics.csv, up to which byte, the size of events.jsonl."""
        place = {"table": 0, "offset": 0, "size": 0, **place}
        video = newest_video(self.folder)
        answer: Answer = {"training": self.is_training(), "video": video and int(video.stem)}
        if not any(place.values()):
            env_name = str(read_json(self.folder / "config.json").get("env_name", "")).strip("<>")
            answer |= {"name": label_of(self.folder), "environment": shorten(env_name)}
        try:
            answer |= read_rows(self.folder / METRICS, place["table"], place["offset"])
        except FileNotFoundError:
            pass  # the run has not finished an iteration
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            answer["problem"] = f"{METRICS} cannot be read ({reason})"
        with suppress(OSError):
            answer |= read_events(self.folder / EVENTS, place["size"])
        return {**place, **answer}

    def is_training(self) -> bool:
        """Return whether a process trains the run. A lock that is free is tried only once, since
        meanwhile, for some microseconds, no process could begin to train the run."""
        since = 0
        with suppress(OSError):
            since = os.stat(self.folder / "lock").st_mtime_ns  # a process that locks it, writes it
        if since != self.idle_since and not is_running(self.folder):
            self.idle_since = since
        return since != self.idle_since


def read_rows(path: Path, table: int, offset: int) -> Answer:
    """Read the rows of metrics.csv from an offset: values, None where there is none; from the
    start, then with names, if it is another file than before, as of a resumed run.

    table: stands for the file and its header. Raises OSError and ValueError."""
    with open_regular(path) as file:
        header = file.readline(MAX_HEADER_BYTES)
        names = header.decode(errors="replace").rstrip("\n").split(",")
        if not header.endswith(b"\n") or not COUNTED.keys() <= {*names}:
            raise ValueError("it begins with another line than its header")
        about = os.fstat(file.fileno())
        answer: Answer = {"table": crc32(header, about.st_ino & 0xFFFFFFFF)}
        if answer["table"] != table or not len(header) <= offset <= about.st_size:
            answer["names"], offset = names, len(header)
        file.seek(offset)
        content = file.read(MAX_BYTES)
    has_more = len(content) == MAX_BYTES
    end = content.rfind(b"\n") + 1 or (has_more and MAX_BYTES)  # no row is as long
    rows = [parse_row(names, line) for line in content[:end].split(b"\n")[:-1]]
    if None in rows:
        answer["problem"] = f"{METRICS} has lines that are not rows of numbers: they are left out"
    return {**answer, "offset": offset + end, "rows": [*filter(None, rows)], "more": has_more}


def parse_row(names: list[str], line: bytes) -> list[float | None] | None:
    """Return the values of a line of metrics.csv, None for those that are missing or not finite;
    None if it is not a row."""
    try:
        values = [float(text or "nan") for text in line.decode(errors="replace").split(",")]
        row = dict(zip(names, values, strict=True))
    except ValueError:
        return None
    is_row = all(0 <= row[name] < limit for name, limit in COUNTED.items())
    return [x if abs(x) <= MAX_NUMBER else None for x in values] if is_row else None


def read_events(path: Path, size: int) -> Answer:
    """Read the newest events of a run, the newest first, unless the file has the size that it had.
    Raises OSError."""
    with open_regular(path) as file:
        new_size = os.fstat(file.fileno()).st_size
        if new_size == size:
            return {}
        file.seek(max(0, new_size - MAX_EVENT_BYTES))
        lines = file.read(MAX_EVENT_BYTES).split(b"\n")
    events: list[dict[str, str]] = []
    for line in reversed(lines):  # the first one may begin before
        with suppress(ValueError):
            event = parse_json(line)
            if isinstance(event, dict) and len(events) < MAX_EVENTS:
                events.append(describe_event(event))
    return {"events": events, "size": new_size}


def describe_event(event: Mapping[str, Any]) -> dict[str, str]:
    """Return texts about an event: its message, or without one, its other details."""
    texts = {name: event.get(name) or "" for name in ("time", "kind", "message")}
    details = (f"{x}={y}" for x, y in event.items() if x not in texts and not isinstance(y, dict))
    texts["message"] = texts["message"] or ", ".join(details)
    return {name: shorten(str(text)) for name, text in texts.items()}


def newest_video(folder: Path) -> Path | None:
    """Return a run's newest video, to which no link leads inside its folder; None without one."""
    videos = folder / "videos"
    names = [] if os.path.islink(videos) else [path.name for path in videos.glob("*.mp4")]
    paths = [videos / name for name in names if VIDEO.fullmatch(name)]
    own = [path for path in paths if not os.path.islink(path)]
    return max(own, key=lambda path: int(path.stem), default=None)
