"""Callbacks, a learner, a model and writers of loggers that fail as FAULT says; see faulty.py."""

import os
import shutil
import signal
import subprocess
import sys
from multiprocessing import active_children
from types import SimpleNamespace
from typing import Any, ClassVar

from faulty import DONE, RUN, Fault

from ppo import Callback, Learner
from ppo.models.actor_critic import ActorCritic

FAULT = Fault()
SYNC = os.fsync


def sync(file: int) -> None:
    """Force a file to the disk; a checkpoint may be kept from it by a fault."""
    if "checkpoints/" in os.readlink(f"/proc/self/fd/{file}"):
        FAULT.act("sync")
    SYNC(file)


def close_reader() -> None:
    """Let nobody read the output any more."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


os.fsync = sync
DONE |= {
    "kill_all": lambda: [process.kill() for process in active_children()],
    "kill_parent": lambda: os.kill(os.getppid(), signal.SIGTERM),
    "remove": lambda: shutil.rmtree(RUN),
    "unread": close_reader,
    "again": lambda: print("exit code", subprocess.run([sys.executable, *sys.argv]).returncode),
    "enough": lambda: Faulty.run.stop("it is enough"),
}


def at(place: str) -> Any:
    """Make a method of a callback in which a fault may happen."""

    def method(self: Callback, run: Any, *arguments: Any) -> None:
        Faulty.run = run
        FAULT.act(place)

    return method


class Faulty(Callback):
    run: ClassVar[Any] = None
    on_start = at("on_start")
    on_batch = at("on_batch")
    on_episode = at("on_episode")
    on_iteration = at("on_iteration")
    on_evaluation = at("on_evaluation")
    on_checkpoint = at("on_checkpoint")
    on_end = at("on_end")


class Loss(Learner):
    def loss(self, *arguments: Any) -> Any:
        return FAULT.act("loss", *super().loss(*arguments))


class Model(ActorCritic):
    """Has no method forward."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        FAULT.act("model")


class Writer:
    """Stands in for a writer of TensorBoard."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: FAULT.act("writer")


sys.modules["torch.utils.tensorboard"] = SimpleNamespace(SummaryWriter=Writer)
