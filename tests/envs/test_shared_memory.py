"""Arrays that a child process shares."""

import os

import numpy as np

from ppo.envs.shared_memory import PROCESSES, SharedArray


def write(shared: SharedArray) -> None:
    shared.array[1, 2] = 7


def test_a_child_process_writes_to_the_same_memory_which_has_no_name() -> None:
    before = os.listdir("/dev/shm")
    shared = SharedArray((2, 3), np.float32)
    assert shared.array.dtype == np.float32
    assert not shared.array.any()
    process = PROCESSES.Process(target=write, args=(shared,))
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert shared.array.tolist() == [[0, 0, 0], [0, 0, 7]]
    assert os.listdir("/dev/shm") == before
