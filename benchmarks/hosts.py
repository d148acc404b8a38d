"""Two hosts, for real: python -m benchmarks.hosts [--env=LunarLander-v3] [--delay=20]

Trains an environment to the end by its tuned preset: in one process on one core, and on two; by two ranks on one
machine; and by two hosts with a rank and a core each. These hosts are network namespaces, that have nothing in common
but a veth pair; then once more they are joined by a link on which every packet takes some milliseconds longer, each way
(two TUN devices and a thread between them, for not every kernel has tc's netem). Seconds are from the end of the first
iteration to the end of the last. Needs Linux, root, iproute2 and two cores with nothing else to do. Writes
results/ranks/hosts.json and hosts.md."""

import argparse
import fcntl
import os
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, about_machine
from benchmarks.ranks import launcher, of_run, write

HOSTS = ("10.99.0.1", "10.99.0.2")
PORT = 29400
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
LISTEN = """import socket
server = socket.create_server(("", 29500))
print(flush=True)
server.accept(), server.accept()"""
CONNECT = f"""import socket, time
socket.create_connection(("{HOSTS[0]}", 29500))  # the first one has to ask who has the address
start = time.perf_counter()
socket.create_connection(("{HOSTS[0]}", 29500))
print(1e3 * (time.perf_counter() - start))"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def on_host(number: int, *command: str) -> list[str]:
    return ["ip", "netns", "exec", f"host{number}", *command]


@contextmanager
def network(delay: float) -> Iterator[None]:
    """Two hosts with their addresses, joined by a link that takes some seconds longer each way."""
    stopped = threading.Event()
    remove()
    try:
        for number in range(2):
            ip("netns", "add", f"host{number}")
        if delay:
            ends = [tun(f"link{number}") for number in range(2)]
            for number in range(2):
                ip("link", "set", f"link{number}", "netns", f"host{number}")
            threading.Thread(target=relay, args=(ends, delay, stopped), daemon=True).start()
        else:
            ip(
                "link",
                "add",
                "link0",
                "netns",
                "host0",
                "type",
                "veth",
                "peer",
                "name",
                "link1",
                "netns",
                "host1",
            )
        for number, address in enumerate(HOSTS):
            ip("-n", f"host{number}", "addr", "add", f"{address}/24", "dev", f"link{number}")
            for device in ("lo", f"link{number}"):
                ip("-n", f"host{number}", "link", "set", device, "up")
        yield
    finally:
        stopped.set()
        remove()


def remove() -> None:
    for number in range(2):
        subprocess.run(["ip", "netns", "del", f"host{number}"], stderr=subprocess.DEVNULL)


def tun(name: str) -> int:
    """A new network device whose packets are read from and written to a descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def relay(ends: list[int], delay: float, stopped: threading.Event) -> None:
    """Hand each packet that one end gives to the other one, some seconds later."""
    waiting: list[deque[tuple[float, bytes]]] = [deque(), deque()]
    while not stopped.is_set():
        first = min((queue[0][0] for queue in waiting if queue), default=time.monotonic() + 0.1)
        ready, _, _ = select.select(ends, [], [], max(0.0, first - time.monotonic()))
        for end in ready:
            with suppress(OSError):  # it is gone
                waiting[1 - ends.index(end)].append((time.monotonic() + delay, os.read(end, 65536)))
        for end, queue in zip(ends, waiting, strict=True):
            while queue and queue[0][0] <= time.monotonic():
                with suppress(OSError):  # it is not up yet
                    os.write(end, queue.popleft()[1])
    for end in ends:
        os.close(end)


def round_trip() -> float:
    """Milliseconds that it takes one host to connect to the other one, and to be answered."""
    with subprocess.Popen(
        on_host(0, sys.executable, "-c", LISTEN), stdout=subprocess.PIPE
    ) as listening:
        assert listening.stdout
        listening.stdout.readline()
        return float(subprocess.check_output(on_host(1, sys.executable, "-c", CONNECT)))


def by_hosts(flags: list[str], delay: float) -> dict[str, Any]:
    """What came of a run by two hosts."""
    with tempfile.TemporaryDirectory() as folder, network(delay):
        milliseconds, processes = round_trip(), []
        for number, address in enumerate(HOSTS):
            meeting = [
                "--rdzv_backend=c10d",
                f"--rdzv_endpoint={HOSTS[0]}:{PORT}",
                "--rdzv_id=hosts",
            ]
            meeting += [
                f"--rdzv_conf=is_host={int(number == 0)}"
            ]  # which it knows by itself where names are resolved
            torchrun = launcher(
                "--nnodes=2", "--nproc_per_node=1", *meeting, f"--local_addr={address}"
            )
            processes.append(
                subprocess.Popen(
                    on_host(number, *torchrun, *flags, f"--run_dir={folder}/run"),
                    cwd=ROOT,
                    env={**os.environ, "GLOO_SOCKET_IFNAME": f"link{number}"},
                    preexec_fn=partial(os.sched_setaffinity, 0, {number}),
                )
            )
        assert [process.wait() for process in processes] == [0, 0]
        return {"round_trip_ms": milliseconds, **of_run(Path(folder, "run"))}


def here(flags: list[str], program: list[str], cores: set[int]) -> dict[str, Any]:
    """What came of a run on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        pin = partial(os.sched_setaffinity, 0, cores)
        subprocess.run(
            [*program, *flags, f"--run_dir={folder}/run"], cwd=ROOT, check=True, preexec_fn=pin
        )
        return of_run(Path(folder, "run"))


def table(result: dict[str, Any]) -> str:
    lines = [
        "# Two hosts",
        "",
        *__doc__.split("\n")[2:],
        "",
        f"Written by `{result['command']}` on",
    ]
    lines[-1] += f" {result['cpu']}, {result['cores']} cores, commit {result['commit']}."
    lines += [
        "",
        "| | round trip | seconds | steps | steps/s | exchanging and waiting | evaluation |",
    ]
    lines.append("| --- " * 7 + "|")
    for name, run in result["runs"].items():
        trip = f"{run['round_trip_ms']:.2g} ms" if "round_trip_ms" in run else ""
        lines.append(
            f"| {name} | {trip} | {run['seconds']:.0f} | {run['steps']:,} | {run['steps_per_second']:,.0f}"
            f" | {run['exchanging']:.0%} | {run['evaluation']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="LunarLander-v3")
    parser.add_argument("--delay", type=float, default=20.0, help="milliseconds, each way")
    given = parser.parse_args()
    flags = [f"--env_name={given.env}", "--logger=none", "--report=False", "--eval_episodes=100"]
    one, two = [sys.executable, "main.py"], launcher("--standalone", "--nproc_per_node=2")
    kinds = {
        "one process, one core": partial(here, flags, one, {0}),
        "one process, two cores": partial(here, flags, one, {0, 1}),
        "two ranks, two cores": partial(here, flags, two, {0, 1}),
        "two hosts": partial(by_hosts, flags, 0.0),
        f"two hosts, {given.delay:g} ms": partial(by_hosts, flags, given.delay / 1000),
    }
    command = f"python -m benchmarks.hosts --env={given.env} --delay={given.delay:g}"
    result: dict[str, Any] = {
        "command": command,
        **about_machine("torch", "gymnasium", "numpy"),
        "runs": {},
    }
    for name, run in kinds.items():
        result["runs"][name] = run()
        print(name, result["runs"][name], flush=True)
    write("hosts", result, table(result))


if __name__ == "__main__":
    main()
