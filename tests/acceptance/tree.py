"""A tree of the trainer: its commands, run in processes of their own, and what they leave."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / "environments"
MARK = "ACCEPTANCE"  # in the environment of all processes of a command
TIMES = re.compile(r"seconds|_per_second")  # columns that differ between two runs of the same work
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SECONDS_TO_END = 5.0  # for processes that end with their trainer
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs in the background


@dataclass(frozen=True)
class Done:
    """A command that has ended. code: None if it had to be killed; left: commands of processes
    that were still there when main() had returned, or that outlived it."""

    code: int | None
    out: str
    err: str
    left: Sequence[str] = ()

    @property
    def last(self) -> str:
        """The last line on standard error."""
        return self.err.strip().rpartition("\n")[2]


def marked(mark: str) -> dict[int, str]:
    """Return the processes that have a mark in their environment: their commands by number."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                command = (folder / "cmdline").read_bytes().decode().replace("\0", " ")
                if command and "resource_tracker" not in command:
                    found[int(folder.name)] = command.strip()
    return found


def end_marked(mark: str, seconds: float = SECONDS_TO_END) -> list[str]:
    """Wait for processes with a mark to end, kill those that do not, and return their commands."""
    deadline = time.monotonic() + seconds
    while (found := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [*found.values()]


@dataclass
class Tree:
    """The trainer in a folder. Commands are written with the flags of version 3."""

    folder: Path
    servers: threading.local = field(default_factory=threading.local)

    @cached_property
    def version(self) -> int:
        """The major version."""
        paths = [self.folder / x for x in ("pyproject.toml", "setup.cfg")]
        texts = [x.read_text() for x in paths if x.exists()]
        found = re.search(r"^version\s*=\s*\"?(\d+)", "\n".join(texts), re.MULTILINE)
        assert found, f"{self.folder} has no version in pyproject.toml or setup.cfg"
        return int(found[1])

    def arguments(self, command: str | Sequence[str]) -> list[str]:
        """Split a command line, and write it with the flags that this version has."""
        given = command.split() if isinstance(command, str) else [*command]
        if self.version >= 3:
            return given
        if not given or given[0].startswith("--") or given[0] == "train":
            given.append("--report=False")
        for word in [x for x in given if re.fullmatch(r"--step_timeout=[\d.]+", x)]:
            given.append(f"--reset_timeout={2 * float(word.partition('=')[2])}")
        return given

    def environment(self, mark: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return what a command's processes have in their environment."""
        paths = os.pathsep.join([str(ENVIRONMENTS), str(self.folder)])
        about = {"PYTHONPATH": paths, MARK: mark, "PYTHONWARNINGS": "ignore", "COLUMNS": "200"}
        return {**about, **(extra or {})}

    def start(self, command: str | Sequence[str], cwd: Path, **options: Any) -> "Process":
        """Start main.py in a process of its own; options: of Process."""
        return Process(self, command, cwd, **options)

    def run(
        self,
        command: str | Sequence[str],
        cwd: Path,
        *,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
        script: str | Path | None = None,
    ) -> Done:
        """Run main.py or a script to its end, in a fork of a process that has torch already."""
        cwd.mkdir(parents=True, exist_ok=True)
        mark = uuid.uuid4().hex
        files = {kind: cwd / f".{kind}-{mark}" for kind in ("out", "err", "left")}
        request = {
            "script": str(script or self.folder / "main.py"),
            "arguments": [*map(str, command)] if script else self.arguments(command),
            "cwd": str(cwd),
            "env": self.environment(mark, env),
            "timeout": timeout,
            **{kind: str(path) for kind, path in files.items()},
        }
        print(json.dumps(request), file=self.server.stdin, flush=True)
        code = json.loads(self.server.stdout.readline())
        left = end_marked(mark)
        texts = read_and_remove(files)
        if self.version >= 3:  # version 2 has a process that ends with its parent
            left += json.loads(texts["left"] or "[]")
        return Done(code, texts["out"], texts["err"], left)

    @property
    def server(self) -> Any:
        """This thread's server, which is started by its first command."""
        found: subprocess.Popen[str] | None = getattr(self.servers, "process", None)
        if found is None or found.poll() is not None:
            found = subprocess.Popen(
                [sys.executable, str(HERE / "server.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **ONE_THREAD, **self.environment("server")},
            )
            self.servers.process = found
        return found


class Process:
    """A command of a tree in a process group of its own."""

    def __init__(
        self,
        tree: Tree,
        command: str | Sequence[str],
        cwd: Path,
        *,
        program: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        cwd.mkdir(parents=True, exist_ok=True)
        self.mark = uuid.uuid4().hex
        self.begin = time.monotonic()
        self.files = {kind: cwd / f".{kind}-{self.mark}" for kind in ("out", "err")}
        program = program or (sys.executable, str(tree.folder / "main.py"))
        with self.files["out"].open("w") as out, self.files["err"].open("w") as err:
            self.process = subprocess.Popen(
                [*program, *tree.arguments(command)],
                cwd=cwd,
                env={**os.environ, **tree.environment(self.mark, env)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def wait(self, timeout: float = 120) -> Done:
        """Wait for the end; kill what has not ended by then."""
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = self.process.wait(timeout)
        left = end_marked(self.mark, 0 if code is None else SECONDS_TO_END)
        self.process.wait()
        return Done(code, **read_and_remove(self.files), left=left)

    def wait_for_rows(self, run: Path, count: int) -> None:
        """Wait until a run has some rows in metrics.csv, or the process has ended."""
        while self.process.poll() is None and len(rows(run)) < count:
            time.sleep(0.005)


def read_and_remove(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the texts of files that may be there, by name, and remove them."""
    texts = {name: x.read_text(errors="replace") if x.exists() else "" for name, x in files.items()}
    for path in files.values():
        path.unlink(missing_ok=True)
    return texts


def rows(run: Path) -> list[dict[str, str]]:
    """Read a run's metrics, but for a last line that is being written."""
    path = run / "metrics.csv"
    text = path.read_text() if path.exists() else ""
    return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))


def without_times(run: Path) -> list[dict[str, str]]:
    """Read a run's metrics without the columns of times."""
    return [{name: x for name, x in row.items() if not TIMES.search(name)} for row in rows(run)]


def tensors(run: Path, name: str = "last") -> dict[str, np.ndarray]:
    """Read all tensors of a run's checkpoint."""
    with safe_open(run / "checkpoints" / f"{name}.safetensors", "np") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def summary(run: Path) -> dict[str, Any]:
    """Read a run's summary."""
    return dict(json.loads((run / "summary.json").read_text()))
