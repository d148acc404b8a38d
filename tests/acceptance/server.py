"""Run scripts one after the other, each in a process forked from this one, which has imported torch
and gymnasium already. Requests and exit codes are lines of JSON on standard input and output."""

import json
import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def children() -> list[str]:
    """Return the command lines of this process's children but multiprocessing's own tracker."""
    found = []
    for pid in Path("/proc/self/task", str(os.getpid()), "children").read_text().split():
        command = Path("/proc", pid, "cmdline").read_bytes().decode()  # empty if it has ended
        if command and "resource_tracker" not in command:
            found.append(command.replace("\0", " "))
    return found


def run_script(request: dict[str, Any]) -> int:
    """Run a script as if it had been started by itself; return its exit code."""
    os.setsid()
    os.chdir(request["cwd"])
    os.environ |= request["env"]
    for number, name in enumerate((os.devnull, request["out"], request["err"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND), number)
    sys.argv = [request["script"], *request["arguments"]]
    sys.path[0] = str(Path(request["script"]).parent)
    code: Any = 0
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    Path(request["left"]).write_text(json.dumps(children()))
    return code if isinstance(code, int) else int(code is not None)


def wait(pid: int, timeout: float) -> int | None:
    """Return the exit code of a process, negative for a signal; None if it had to be killed."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "w")  # scripts have another standard output
    import gymnasium  # noqa: F401
    import torch  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            code = 70
            try:
                code = run_script(request)
            finally:
                os._exit(code)
        print(json.dumps(wait(pid, request["timeout"])), file=replies, flush=True)
