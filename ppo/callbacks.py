"""Callbacks: code of yours that a run calls. This module imports no torch."""

from collections.abc import Sequence
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ppo.errors import ConfigError
from ppo.extras import FLAGS
from ppo.flags import checked, flags_of
from ppo.imports import import_named

if TYPE_CHECKING:
    from ppo.checkpoint import State
    from ppo.envs.episodes import Episode
    from ppo.envs.make import Spaces
    from ppo.models.actor_critic import ActorCritic
    from ppo.policy import Evaluation
    from ppo.rollout import Batch, Metrics
    from ppo.run import Run


class Callback:
    """Base class of callbacks: override what you need.

    Methods are called in the trainer's process, between two rollouts; on_model also where workers
    and policies make the network. An exception in one ends the run, whose last state is saved."""

    def on_model(self, model: "ActorCritic", spaces: "Spaces") -> None:
        """Change a network that has just been made."""

    def on_start(self, run: "Run") -> None:
        """Prepare for the first iteration; after load_state_dict if the run is resumed."""

    def on_batch(self, run: "Run", batch: "Batch") -> None:
        """Change a batch, or add tables (T * N, ...) to it, before it is learned from."""

    def loss(
        self, learner: Any, minibatch: "Batch", distribution: Any, values: Any
    ) -> tuple[Any, "Metrics"]:
        """Return a term to add to the loss of a minibatch, and metrics."""
        return 0.0, {}

    def on_episode(self, run: "Run", episode: "Episode") -> None:
        """React to an episode that ended in this iteration; before on_iteration."""

    def on_iteration(self, run: "Run") -> None:
        """React to a finished iteration: read run.metrics, run.rollout and run.batch."""

    def on_evaluation(self, run: "Run", result: "Evaluation") -> None:
        """React to an evaluation, during training or at its end."""

    def on_checkpoint(self, run: "Run") -> None:
        """React to a checkpoint that has been saved."""

    def on_end(self, run: "Run") -> None:
        """Finish after the final evaluation; not called if a signal or an error ended the run."""

    def state_dict(self) -> "State":
        """Return the state to save in checkpoints: tensors, arrays and JSON values, by name."""
        return {}

    def load_state_dict(self, state: "State") -> None:
        """Restore what state_dict() returned, tensors as arrays."""


def make_callbacks(given: Any) -> list[Callback]:
    """Return one or several callbacks, given as objects, classes or names. Raises ConfigError."""
    things = given if isinstance(given, (list, tuple)) else [given]
    try:
        made = [import_named(x, "callback", Callback) for x in things]
        return [x() if isinstance(x, (type, partial)) else x for x in made]
    except TypeError as error:
        raise ConfigError(f"--callback={given} cannot be created ({error})") from error


def overriding(callbacks: Sequence[Callback], method: str) -> list[Callback]:
    return [x for x in callbacks if getattr(type(x), method) is not getattr(Callback, method)]


def named(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Return callbacks by the names of their states: of the class, and a number within it."""
    found = {}
    kinds = [type(x).__name__ for x in callbacks]
    for index, kind in enumerate(kinds):
        found[f"callbacks.{kind}.{kinds[:index].count(kind)}"] = callbacks[index]
    return found


def make_extras(values: dict[str, Any], callbacks: Sequence[Callback]) -> list[Callback]:
    """Make the callbacks that have flags which are given, and take these from values."""
    found = []
    for path in dict.fromkeys(FLAGS[name] for name in FLAGS if name in values):
        kind = resolve_name(path)
        own = {name: values.pop(name) for name in flags_of(kind) if name in values}
        if not any(type(x) is kind for x in callbacks):
            found.append(kind(**checked(own, flags_of(kind))))
    return found
