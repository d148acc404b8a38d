"""Imported by Python as it starts, where this folder is in PYTHONPATH: take away what Linux has and
macOS lacks, so that the trainer can be run as if it were there."""

import ctypes
import mmap
import os
import re
import select
import signal
import socket
import sys
from multiprocessing.heap import Arena
from pathlib import PurePath
from types import SimpleNamespace

MISSING = re.compile(
    "sched_[gs]et|sched_param|SCHED_|pidfd|memfd|MFD_|eventfd|EFD_|epoll|EPOLL|inotify|splice"
    "|copy_file_range|getrandom|pipe2|fdatasync|posix_fa|setres|getres|.etxattr|listxattr"
    "|O_(DIRECT|NOATIME|PATH|TMPFILE)$|SIG(RT|PWR|POLL|STKFLT)|sigtimedwait|sigwaitinfo"
    "|AF_(NETLINK|PACKET)|SOCK_(CLOEXEC|NONBLOCK)|MADV_HUGE|MAP_POPULATE"
)
FOLDERS = ("/proc", "/sys", "/dev/shm")
FUNCTIONS = ("prctl", "mallopt")


class Library(ctypes.CDLL):
    """A library of C without the functions that only Linux or glibc has."""

    def __getattr__(self, name):
        if name in FUNCTIONS:
            raise AttributeError(name)
        return super().__getattr__(name)


def hide_folders(event, arguments):
    """Let files in Linux's own folders seem not to exist: a hook of sys.addaudithook."""
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path = os.fsdecode(arguments[0])
        if any(PurePath(path).is_relative_to(folder) for folder in FOLDERS):
            raise FileNotFoundError(2, "No such file or directory", path)


for module in (os, select, signal, socket, mmap):
    for name in filter(MISSING.match, dir(module)):
        delattr(module, name)
Arena._dir_candidates = []
ctypes.CDLL = Library
sys.modules["_scproxy"] = SimpleNamespace(_get_proxy_settings=dict, _get_proxies=dict)  # of urllib
sys.platform = "darwin"
sys.addaudithook(hide_folders)
