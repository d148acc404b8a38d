"""Passing metrics to Weights & Biases without ever waiting for it, against a stand-in."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import ppo.extras.loggers.wandb
from ppo.config.config import Config
from ppo.extras.loggers.wandb import WandbLogger


class Run(SimpleNamespace):
    """A folder that remembers events."""

    def __init__(self, path: Path) -> None:
        super().__init__(path=path, run_id="abcd1234", events=[])

    def event(self, kind: str, message: str = "") -> None:
        self.events.append((kind, message))


class Service(ModuleType):
    """Stand in for the package wandb: remember what it is given."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.rows: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.begun: dict[str, Any] = {}
        self.answers = Event()
        self.answers.set()
        self.Settings = SimpleNamespace

    @contextmanager
    def init(self, **options: Any) -> Iterator["Service"]:
        self.begun = options
        yield self

    def log(self, row: dict[str, Any], step: int) -> None:
        self.answers.wait()
        if row.get("bad"):
            raise SystemExit("no\nnetwork")
        self.rows.append({**row, "step": step})


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    monkeypatch.setitem(sys.modules, "wandb", made)
    return made


def make(run: Run, **values: Any) -> WandbLogger:
    any_run: Any = run
    return WandbLogger(Config(**values), any_run, (), first_step=0)


def test_runs_that_differ_in_their_seed_only_form_a_group(service: Service, tmp_path: Path) -> None:
    groups = []
    for values in ({"seed": 1}, {"seed": 2}, {"seed": 1, "gamma": 0.5}):
        logger = make(Run(tmp_path), **values)
        logger.close()
        groups.append(service.begun["group"])
        assert (service.begun["id"], service.begun["resume"]) == ("abcd1234", "allow")
    assert groups[0] == groups[1] != groups[2]


def test_what_the_thread_raises_is_raised_by_the_next_call(
    service: Service, tmp_path: Path
) -> None:
    logger = make(Run(tmp_path))
    logger.log({"step": 1, "bad": True}, None)
    logger.thread.join(10)
    for call in (lambda: logger.log({"step": 2}, None), logger.close):
        with pytest.raises(SystemExit, match=r"no\nnetwork"):
            call()


def test_a_service_that_does_not_answer_is_not_waited_for(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ppo.extras.loggers.wandb, "MAX_WAITING_CALLS", 2)
    monkeypatch.setattr(ppo.extras.loggers.wandb, "SECONDS_TO_FINISH", 0.2)
    service.answers.clear()
    logger = make(Run(tmp_path))
    with pytest.raises(TimeoutError, match="it does not keep up"):  # noqa: PT012
        for step in range(4):  # two wait, and one may be in the thread's hands
            logger.log({"step": step}, None)
    late = make(Run(tmp_path))
    late.log({"step": 1}, None)
    with pytest.raises(TimeoutError, match="it did not finish in time"):
        late.close()
    service.answers.set()
    for one in (logger, late):
        one.calls.put(None)
        one.thread.join(10)
