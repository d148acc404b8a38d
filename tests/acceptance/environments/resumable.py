"""Environments, callbacks and a learner of runs that are killed and resumed. KILL=PHASE:COUNT in
the environment: the trainer is killed when it comes to a phase for that time.
python resumable.py --flag=value ...: train with two callbacks of one class."""

import ast
import os
import signal
import sys
from collections import Counter
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

import ppo

COUNTS: Counter[str] = Counter()  # how often this process has come to each phase


def come_to(phase: str) -> None:
    """Kill the trainer, which is this process or has started it, if this is the moment."""
    COUNTS[phase] += 1
    if os.environ.get("KILL") == f"{phase}:{COUNTS[phase]}":
        parent = parent_process()
        os.kill(parent.pid if parent else os.getpid(), signal.SIGKILL)


def watch_renames(event: str, arguments: Any) -> None:
    """Take it for a phase that a file is about to get its name."""
    if event == "os.rename":
        come_to(f"rename {Path(os.fsdecode(arguments[1])).name}")


class Slippery(CartPoleEnv):
    """CartPole in which a part of the actions is turned round, more and more in training."""

    phase = "collect"
    amount = 0.0

    def step(self, action: Any) -> Any:
        come_to(self.phase)
        if self.np_random.random() < self.amount:
            action = 1 - action
        *results, info = super().step(action)
        return *results, {**info, "amount": self.amount}


class Evaluated(Slippery):
    phase = "evaluate"


class Harder(ppo.Callback):
    """Turn more actions round the more episodes there were, and log a new metric now and then."""

    def __init__(self) -> None:
        self.episodes = 0

    def on_start(self, run: Any) -> None:
        if "KILL" in os.environ:
            sys.addaudithook(watch_renames)

    def on_episode(self, run: Any, episode: Any) -> None:
        self.episodes += 1

    def on_iteration(self, run: Any) -> None:
        if run.iteration % 2 == 0:
            run.set_env(amount=min(0.3, self.episodes / 500))
        run.log("own/episodes", self.episodes)
        run.log(f"own/new_{run.iteration // 6}", run.iteration)
        come_to("iteration")

    def on_evaluation(self, run: Any, result: Any) -> None:
        come_to("evaluated")

    def on_checkpoint(self, run: Any) -> None:
        come_to("checkpoint")

    def state_dict(self) -> dict[str, Any]:
        return {"table": np.full(3, float(self.episodes))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episodes = int(np.asarray(state["table"])[0])


class Count(ppo.Callback):
    """Count iterations by a step of its own."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.total = 0

    def on_iteration(self, run: Any) -> None:
        self.total += self.step
        run.log(f"own/by_{self.step}", self.total)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


if parent_process() is None:  # workers need no torch

    class Penalized(ppo.Learner):
        """Keep values small."""

        def loss(self, minibatch: Any, distribution: Any, values: Any) -> tuple[Any, Any]:
            come_to("loss")
            loss, metrics = super().loss(minibatch, distribution, values)
            return loss + 0.01 * values.square().mean(), metrics


def value_of(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


if __name__ == "__main__":
    given = (word[2:].split("=") for word in sys.argv[1:])
    flags = {name: value_of(text) for name, text in given}
    ppo.train("CartPole-v1", callbacks=[Count(1), Count(10)], **flags)
