"""Settings of the whole process, in processes of their own."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ppo.system.process import generator_states, set_generator_states
from tests.running import ROOT

THREADS = """
import torch
from ppo.system.process import configure_process
configure_process(2, True)
print(torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
"""
DENORMALS = """
import torch
from ppo.system.process import configure_process, flush_denormals
configure_process(2, False)
numbers = torch.full((1_000_000,), 1e-20)  # a part for each of the threads
with flush_denormals():
    flushed = numbers * 1e-20
kept = numbers * 1e-20
print(flushed.view(torch.int32).any().item(), kept.view(torch.int32).any().item())
"""
FREEZE = """
import gc, weakref
from ppo.system.process import freeze_garbage, restored_process
gc.disable()
class Loop: pass
with restored_process():
    loop = Loop()
    loop.itself = loop
    left = weakref.ref(loop)
    freeze_garbage()
    assert gc.isenabled() and gc.get_freeze_count() > 0
    del loop
    gc.collect()
    assert left() is not None
assert not gc.isenabled() and not gc.get_freeze_count()
gc.collect()
print(left() is None)
"""
PAGE_FAULTS = """
import resource, sys
from ppo.system.process import disable_malloc_trim
if sys.argv[1] == "True":
    disable_malloc_trim()
def fill():
    b"x" * (40 * 2**20)  # more than malloc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = fill()
for _ in range(10):
    after = fill()
print(after - before)
"""
CHILD = """
import time
import os
from ppo.system.process import die_with_parent
die_with_parent(os.getppid())
print("ready", flush=True)
time.sleep(60)
"""
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid)
"""


def output(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_threads_and_determinism_are_set() -> None:
    assert output(THREADS) == "2 True"


@pytest.mark.slow
def test_denormal_numbers_are_zero_in_all_threads_and_there_only() -> None:
    assert output(DENORMALS) == "False True"


@pytest.mark.slow
def test_objects_of_a_run_are_exempt_from_garbage_collection_until_it_is_over() -> None:
    assert output(FREEZE) == "True"


def test_random_states_are_restored() -> None:
    before = generator_states("cpu")
    drawn = torch.rand(3)
    set_generator_states({**before, "cuda": None}, "cpu")  # of a run that had a GPU
    assert torch.equal(torch.rand(3), drawn)


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc's setting")
def test_memory_that_was_freed_is_not_taken_from_the_system_again() -> None:
    before = int(output(PAGE_FAULTS, "False"))
    assert before >= 10 * 20  # pages of 2 MiB, if not of 4 KiB
    assert int(output(PAGE_FAULTS, "True")) < before / 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_a_process_dies_with_its_parent() -> None:
    pid = output(PARENT)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
