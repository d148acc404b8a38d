"""Exchanges between ranks that threads stand in for, or that fail."""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import pytest
import torch

from ppo.errors import RankLost
from ppo.system.collectives import MOST_GATHERED, Collectives, attempt_name


class Store:
    """torch's store, in memory; get waits as torch's does."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        self.content = dict(content or {})
        self.lock = Lock()

    def set(self, key: str, value: str) -> None:
        with self.lock:
            self.content[key] = value.encode()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        while not self.content.keys() >= set(keys):
            pass
        with self.lock:
            return [self.content[key] for key in keys]


def test_ranks_of_an_attempt_agree_on_a_name_that_no_other_attempt_has() -> None:
    store = Store()
    names = []
    for _ in range(3):  # each finds what the one before has left
        with ThreadPoolExecutor(3) as threads:
            agreed = set(threads.map(lambda rank: attempt_name(store, rank, 3), range(3)))
        assert len(agreed) == 1
        names += agreed
    assert len(set(names)) == 3


class TwoRanks:
    """Stands in for torch.distributed, with another rank that has the same tensors."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def all_gather(self, parts: list[torch.Tensor], part: torch.Tensor) -> None:
        self.calls.append("all_gather")
        for each in parts:
            each.copy_(part)

    def all_reduce(self, part: torch.Tensor) -> None:
        self.calls.append("all_reduce")
        part *= 2


def collectives(distributed: Any) -> Collectives:
    result = object.__new__(Collectives)
    result.distributed = distributed
    result.rank = 0
    result.size = 2
    result.seconds = 0.0
    return result


@pytest.mark.parametrize(
    ("size", "call"), [(MOST_GATHERED // 2, "all_gather"), (MOST_GATHERED // 2 + 1, "all_reduce")]
)
def test_small_sums_are_gathered(size: int, call: str) -> None:
    distributed = TwoRanks()
    part = torch.ones(size)
    exchange = collectives(distributed)
    exchange.all_reduce(part)
    assert part.unique().tolist() == [2]
    assert distributed.calls == [call]
    assert exchange.seconds > 0


def test_an_exchange_that_fails_names_the_lost_rank_and_what_to_do() -> None:
    class Lost(TwoRanks):
        def all_gather(self, parts: list[torch.Tensor], part: torch.Tensor) -> None:
            raise RuntimeError("[gloo] Connection closed by peer. This may be\nmore")

    with pytest.raises(
        RankLost, match=r"does not answer \(\[gloo\] Connection closed by peer\): .*--resume"
    ):
        collectives(Lost()).all_gather(torch.ones(2))
