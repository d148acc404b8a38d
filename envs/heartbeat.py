"""Heartbeats: report every call of an environment to the process that watches this one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

CALLS = ("start", "reset", "step", "render", "close")
START, RESET, STEP, RENDER, CLOSE = range(len(CALLS))
# What the numbers of a heartbeat are.
NUM_CALLS, CALL, ENVIRONMENT = range(3)
SHAPE = (3,)
ALL = -1  # in place of an environment's index: a batch of all of them


class Heartbeat:
    """Count the calls of environments in this process, for another process to watch.

    numbers: (3,) int64: the number of calls so far; the last one, an index in CALLS; the index of
    its environment among those of this process, or ALL."""

    def __init__(self) -> None:
        self.is_watched = False
        self.num_calls = 0
        self.numbers = np.zeros(SHAPE, np.int64).data

    def share(self, array: ndarray) -> None:
        """Write the numbers to an array (3,) int64 that the watching process shares."""
        self.is_watched = True
        self.numbers = array.data  # a memoryview, whose elements are faster to write

    def beat(self, call: int, environment: int = 0) -> None:
        """Report that a call begins. call: an index in CALLS."""
        self.num_calls += 1
        numbers = self.numbers
        numbers[NUM_CALLS] = self.num_calls
        numbers[CALL] = call
        numbers[ENVIRONMENT] = environment


def describe_environments(env_ids: Sequence[Any], index: int) -> str:
    """Name the environment with an index among env_ids, or, for ALL, the batch of them."""
    if index != ALL:
        return f"environment {env_ids[index]}"
    return f"the batch of environments {env_ids[0]} to {env_ids[-1]}"


HEARTBEAT = Heartbeat()  # of this process
