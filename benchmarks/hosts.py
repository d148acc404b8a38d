"""Two hosts, for real: python -m benchmarks.hosts [--env=LunarLander-v3] [--delay=20]

Trains an environment to the end by its tuned preset: in one process on one core, and on two; by two
ranks on one machine; and by two hosts with a rank and a core each. These hosts are network
namespaces, that have nothing in common but a veth pair; then once more they are joined by a link on
which every packet takes some milliseconds longer, each way (two TUN devices and a thread between
them, for not every kernel has tc's netem). Seconds are from the end of the first iteration to the
end of the last. Needs Linux, root, iproute2 and two cores with nothing else to do. Writes
results/ranks/hosts.json and hosts.md.
"""

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from benchmarks import harness
from benchmarks.ranks import summarize, torchrun

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
    """Make two hosts, joined by a link that takes some seconds longer each way."""
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
            peer = ["peer", "name", "link1", "netns", "host1"]
            ip("link", "add", "link0", "netns", "host0", "type", "veth", *peer)
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
    """Make a network device; its packets are read and written by the descriptor returned."""
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
    """Measure the milliseconds until one host is connected to the other."""
    server = on_host(0, sys.executable, "-c", LISTEN)
    with subprocess.Popen(server, stdout=subprocess.PIPE) as listening:
        assert listening.stdout
        listening.stdout.readline()
        return float(subprocess.check_output(on_host(1, sys.executable, "-c", CONNECT)))


def start_host(number: int, flags: str) -> subprocess.Popen[bytes]:
    """Start the rank of a host, on a core of its own."""
    ranks = f"--nnodes=2 --nproc_per_node=1 --rdzv_backend=c10d --rdzv_endpoint={HOSTS[0]}:{PORT}"
    # Which of them is the first, hosts know by themselves only where names are resolved.
    ranks += f" --rdzv_id=hosts --rdzv_conf=is_host={int(number == 0)}"
    ranks += f" --local_addr={HOSTS[number]}"
    return subprocess.Popen(
        on_host(number, *torchrun(*ranks.split(), "main.py"), *flags.split()),
        cwd=harness.ROOT,
        env={**os.environ, "GLOO_SOCKET_IFNAME": f"link{number}"},
        preexec_fn=partial(os.sched_setaffinity, 0, {number}),
    )


def by_hosts(flags: str, delay: float, _: int) -> harness.Result:
    """Train by two hosts."""
    with tempfile.TemporaryDirectory() as folder, network(delay):
        milliseconds = round_trip()
        own = f"{flags} --run_dir={folder}/run"
        processes = [start_host(number, own) for number in range(len(HOSTS))]
        assert [process.wait() for process in processes] == [0, 0]
        run = harness.read_run(Path(folder, "run"))
        return {"round_trip_ms": milliseconds, **summarize(run)}


def here(flags: str, program: Sequence[str], cores: set[int], _: int) -> harness.Result:
    """Train on this machine."""
    pin = partial(os.sched_setaffinity, 0, cores)
    return summarize(harness.train(flags, program=program, preexec_fn=pin))


def show(name: str, run: harness.Result) -> str:
    """Write the row of a run."""
    trip = f"{run['round_trip_ms']:.2g} ms" if "round_trip_ms" in run else ""
    speed = f"{run['seconds']:.0f} | {run['steps']:,} | {run['steps_per_second']:,.0f}"
    return f"{name} | {trip} | {speed} | {run['exchanging']:.0%} | {run['evaluation']:.1f}"


def main() -> None:
    parser = harness.make_parser(__doc__, env="LunarLander-v3")
    parser.add_argument("--delay", type=float, default=20.0, help="milliseconds, each way")
    given = parser.parse_args()
    flags = f"--env_name={given.env} --logger=none --report=False --eval_episodes=100"
    one = harness.MAIN
    two = torchrun("--standalone", "--nproc_per_node=2", "main.py")
    kinds = {
        "one process, one core": partial(here, flags, one, {0}),
        "one process, two cores": partial(here, flags, one, {0, 1}),
        "two ranks, two cores": partial(here, flags, two, {0, 1}),
        "two hosts": partial(by_hosts, flags, 0.0),
        f"two hosts, {given.delay:g} ms": partial(by_hosts, flags, given.delay / 1000),
    }
    result = harness.describe()
    found = harness.alternate(kinds, range(1))
    result["runs"] = {name: runs[0] for name, runs in found.items()}
    harness.write_json("ranks/hosts.json", result)
    head = " | round trip | seconds | steps | steps/s | exchanging and waiting | evaluation"
    table = harness.table(head, [show(*run) for run in result["runs"].items()])
    harness.write_page("ranks/hosts.md", __doc__, table, result=result)


if __name__ == "__main__":
    main()
