"""Tests that run side by side compute on cores of their own: where threads of several processes wait for each other on
the same cores, learning from images takes ten times as long."""

import os
import tempfile

number, count = (
    os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:],
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
)
if hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[int(number) :: count] or cores)
os.environ["XDG_CACHE_HOME"] = (
    tempfile.mkdtemp()
)  # what is found out about this machine is not for others
