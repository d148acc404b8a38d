"""Exchanges between ranks that threads stand in for, or that fail."""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pytest
import torch

from ppo.extras.distributed import collectives
from ppo.extras.distributed.collectives import (
    Collectives,
    RankLost,
    attempt_name,
)


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


@pytest.fixture
def exchange(monkeypatch: pytest.MonkeyPatch) -> Collectives:
    """Return the collectives of the first of two ranks."""
    monkeypatch.setattr(collectives, "distributed", TwoRanks())
    result = Collectives()
    result.size = 2
    return result


def test_an_exchange_that_fails_names_the_lost_rank_and_what_to_do(
    exchange: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(parts: list[torch.Tensor], part: torch.Tensor) -> None:
        raise RuntimeError("[gloo] Connection closed by peer. This may be\nmore")

    monkeypatch.setattr(collectives.distributed, "all_gather", lose)
    with pytest.raises(
        RankLost, match=r"does not answer \(\[gloo\] Connection closed by peer\): .*--resume"
    ):
        exchange.all_gather(torch.ones(2))
