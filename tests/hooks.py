"""Callbacks and an environment for tests of run.set_env, and scripts' parts for tests of hooks."""

import os
import signal
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo import Callback
from ppo.errors import ConfigError


class ByName(gymnasium.Env):
    """Observe (level at the reset, step, a random number); episodes of 5 to 9 steps; the reward is
    the level if the action is 1."""

    observation_space = spaces.Box(0, 100, (3,))
    action_space = spaces.Discrete(2)
    level = 0

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.length = int(self.np_random.integers(5, 10))
        self.steps = 0
        self.shown = self.level
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        info = {"level": self.shown, "is_success": bool(action)}
        ended = self.steps == self.length
        return self._observation(), float(action * self.shown), ended, False, info

    def _observation(self) -> np.ndarray:
        return np.array([self.shown, self.steps, self.np_random.random()], np.float32)


class Levels(ByName):
    """Has its level set by a method."""

    def set_training(self, level: int) -> None:
        self.level = level


class Rising(Callback):
    """Raise the level every third iteration; count what was called."""

    def __init__(self) -> None:
        self.level = 0
        self.episodes = 0
        self.levels_seen: set[float] = set()

    def on_start(self, run: Any) -> None:
        assert run.iteration == 0 or self.episodes > 0

    def on_episode(self, run: Any, episode: Any) -> None:
        self.episodes += 1
        assert episode.metrics["level"] <= self.level

    def on_iteration(self, run: Any) -> None:
        if run.iteration == int(os.environ.get("KILL_AT", 0)):
            os.kill(os.getpid(), signal.SIGKILL)
        assert self.episodes == run.metrics["episodes"]
        run.log("level", self.level)
        if run.iteration % 3 == 0:
            self.level += 1
            run.set_env(level=self.level)

    def state_dict(self) -> dict[str, Any]:
        return {"level": self.level, "episodes": self.episodes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.level = state["level"]
        self.episodes = state["episodes"]


class Recorder(Callback):
    """Write down what is called, in the run's folder."""

    def _note(self, run: Any, text: str) -> None:
        with (run.folder.path / "calls.txt").open("a") as file:
            file.write(f"{text} {run.iteration}\n")

    def on_start(self, run: Any) -> None:
        self._note(run, "start")

    def on_iteration(self, run: Any) -> None:
        self._note(run, "iteration")
        if run.iteration == 3:
            run.save()
        if run.iteration == 5:
            run.stop("enough")

    def on_evaluation(self, run: Any, result: Any) -> None:
        self._note(run, f"evaluation of {result.episodes}")

    def on_checkpoint(self, run: Any) -> None:
        self._note(run, "checkpoint")

    def on_end(self, run: Any) -> None:
        self._note(run, "end")


class Slower(Callback):
    """Learns more slowly from the third iteration on, and notes what cannot change."""

    def on_iteration(self, run: Any) -> None:
        if run.iteration == 2:
            run.change(learning_rate="1e-5", num_epochs=1)
        try:
            run.change(gamma=0.5)
        except ConfigError as error:
            run.log("refused", "gamma cannot change during a run" in str(error))


class Failing(Callback):
    """Raise in the third iteration."""

    def on_iteration(self, run: Any) -> None:
        if run.iteration == 3:
            raise RuntimeError("a wheel came off")


class WrongAttribute(Callback):
    """Set an attribute that the environment has not."""

    def on_iteration(self, run: Any) -> None:
        run.set_env(colour="red")


class NonFinite(Callback):
    """Log what is no number."""

    def on_iteration(self, run: Any) -> None:
        run.log("mine", float("nan"))


class Overwriting(Callback):
    """Log a step in place of the trainer's."""

    def on_iteration(self, run: Any) -> None:
        run.log("step", 0.0)
