"""Print to streams that may be closed."""

import io
import math
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

ERASE_LINE = "\r\x1b[K"
MAX_SHOWN = 10_000  # characters of a message, also in events.jsonl
CONTROL_CHARACTERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")  # other than the end of a line


def shorten(text: str) -> str:
    """Return a text; of a long one, the first and last 5,000 characters and how many are left
    out."""
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"


def printable(text: str) -> str:
    """Return a text with its control characters escaped, since they could command the terminal, and
    without what has no UTF-8 form."""
    escaped = CONTROL_CHARACTERS.sub(lambda match: repr(match[0])[1:-1], text)
    return escaped.encode(errors="backslashreplace").decode()


def aligned(rows: Sequence[Sequence[str]], num_texts: int = 1) -> list[str]:
    """Return the rows of a table as lines: the first columns, of texts, are aligned to the left,
    the others, of numbers, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < num_texts else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def readable(number: float) -> str:
    """Return a number with one decimal, or with as many as three digits take."""
    if number == 0:
        return "0.0"
    if not 1e-6 <= abs(number) < 1e15:
        return f"{number:.4g}"
    decimals = max(1, 2 - math.floor(math.log10(abs(number))))
    return f"{number:,.{decimals}f}"


def show(text: str) -> None:
    """Print a text to standard error, shortened and with control characters escaped, unless that
    cannot be written to."""
    with suppress(OSError):  # the reader has gone, or the output goes to a full disk
        print(printable(shorten(text.rstrip())), file=sys.stderr, flush=True)


def flush_output() -> None:
    """Flush standard output and error, and discard what cannot be written: at exit, Python would
    print an error about it and change the exit code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # closed ones are None
        try:
            stream.flush()
        except OSError:
            discard(stream)


class LineWriter(io.TextIOBase):
    """Print to a terminal in whole lines only, each over the progress bar that another process
    shows there; that process redraws the bar below. Other attributes are those of stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.waiting = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def fileno(self) -> int:
        return self.stream.fileno()  # for programs that an environment starts

    def write(self, text: str) -> int:
        *lines, self.waiting = (self.waiting + text).split("\n")
        with suppress(OSError):  # the terminal has gone
            self.stream.writelines(f"{ERASE_LINE}{line}\n" for line in lines)
            self.stream.flush()
        return len(text)


def discard(stream: TextIO) -> None:
    """Redirect a stream, which must have a file descriptor, to os.devnull."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
