"""Serve the page to browsers of this machine: no other site that these show can read it."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ppo.extras.live_page.folders import (
    PLACE,
    Answer,
    WatchedRun,
    begun,
    find_runs,
    newest_video,
)
from ppo.extras.tools.plots import COLORS, PANELS, RETURNS, UNITS
from ppo.extras.tools.report import PAGE as REPORT
from ppo.run.reader import misfit
from ppo.system.files import parse_json, read_bytes

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": (PAGE / "page.html", "text/html"),
    "/live.js": (PAGE / "live.js", "text/javascript"),
    "/live.css": (PAGE / "live.css", "text/css"),
    "/page.css": (REPORT / "page.css", "text/css"),
}
MAX_RUNS = 40  # on the page: of more, the newest
MAX_VIDEO_BYTES = 1 << 26
# A name that leads to this machine in every browser; by another, a site could make itself its own.
LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; media-src blob:; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """Serve a page about the runs in folders on a port of this machine, 0 for one that is free.
    Raises OSError."""

    allow_reuse_port = False

    def __init__(self, folders: Sequence[Path], port: int) -> None:
        self.folders = [folder.resolve() for folder in folders]  # one may be named twice
        self.runs: dict[Path, WatchedRun] = {}  # by folder
        self.known: set[Path] = set()  # folders of runs, also of those that are not shown
        self.session = token_hex(4)  # of the runs in this order, to which others are only added
        self.looking = Lock()
        super().__init__(("127.0.0.1", port), Handler)

    def news(self, places: Sequence[Mapping[str, int]]) -> Answer:
        """Return what is new. places: how far the page has read of each run, in this order."""
        with self.looking:
            num_left_out = self._look()
        answer: Answer = {"session": self.session, "left_out": num_left_out}
        read = [*places, *[{}] * len(self.runs)]
        pairs = zip([*self.runs.values()], read, strict=False)
        answer["runs"] = [run.news(place) for run, place in pairs]
        if not places:
            answer |= {"titles": {**RETURNS, **PANELS}, "colors": COLORS, "units": UNITS}
        return answer

    def _look(self) -> int:
        """Look for runs that are new; return how many are not shown. Where there are too many, the
        newest are, and pages begin anew."""
        paths = dict.fromkeys(path for folder in self.folders for path in find_runs(folder))
        new = [path for path in paths if path not in self.known]
        self.known.update(new)
        if len(self.runs) + len(new) <= MAX_RUNS:
            self.runs |= {path: WatchedRun(path) for path in new}
        elif new:
            newest = {*sorted(paths, key=begun, reverse=True)[:MAX_RUNS]}
            self.runs = {path: WatchedRun(path) for path in paths if path in newest}
            self.session = token_hex(4)
        return len(paths.keys() - self.runs.keys())

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # else the browser has gone
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answer a request for a file of the page, for news, or for a video."""

    server: PageServer
    timeout = 10

    def do_GET(self) -> None:
        try:
            content, kind = self._find()
        except (OSError, LookupError, ValueError):
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def _find(self) -> tuple[bytes, str]:
        """Return what is asked for, and its type. Raises OSError, LookupError or ValueError if
        there is no such thing."""
        address = urlsplit(self.path)
        asked = parse_qs(address.query)
        if address.path == "/news":
            places = parse_json(asked["places"][0])
            if misfit(places, [PLACE]):
                raise ValueError
            return json.dumps(self.server.news(places)).encode(), "application/json"
        if address.path == "/video":
            run = [*self.server.runs.values()][int(asked["run"][0])]
            if path := newest_video(run.folder):
                return read_bytes(path, MAX_VIDEO_BYTES), "video/mp4"
        path, kind = FILES[address.path]
        return path.read_bytes(), f"{kind}; charset=utf-8"

    def parse_request(self) -> bool:
        """Refuse a request by another name of this machine."""
        if not super().parse_request():
            return False
        if LOOPBACK.fullmatch(self.headers.get("Host", "")):
            return True
        self.send_error(403, "Open this page as localhost")
        return False

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass
