"""What the package adds: a callback, a part and a term of the loss, a logger, a command."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from gymnasium import Env, Wrapper
from gymnasium.spaces import Box
from plugin.flags import NoteFlags

from ppo.callbacks.base import Callback
from ppo.config.flags import Flags, flag
from ppo.envs.inspection import Inspector
from ppo.guard import Deadline, Guard
from ppo.models.actor_critic import Trunk
from ppo.models.distributions import DiagonalGaussian, GaussianHead
from ppo.models.mlp import VectorTrunk
from ppo.parts import Part
from ppo.peers import Peers
from ppo.policy.reader import Observations, Reader
from ppo.policy.spectators import Spectator
from ppo.run.loggers.logger import Logger


def complete(given: dict[str, str]) -> dict[str, str]:
    """Let an environment variable be the note."""
    return {**given, "note": os.environ["NOTE"]} if "NOTE" in os.environ else given


def defaults(given: Any, environment: Any) -> Any:
    """Begin with another seed where there is such a variable."""
    return {"seed": 7} if "NOTE" in os.environ else {}, "defaults of a plugin"


def what_auto_means(given: Any, environment: Any) -> dict[str, str]:
    return {"noted": environment.env_name}


class CountSteps(Wrapper):
    """Count the steps of an environment."""

    count = 0

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.env.step(action)


class Tenths(Inspector):
    """Call every tenth step a fault."""

    count = 0

    def step(self, action: Any) -> Any:
        self.count += 1
        self.faults["tenth_step"] += self.count % 10 == 0
        self.problems["length"] = "it has steps"
        return self.env.step(action)


def inspect(config: Any, env: Env) -> Env:
    return Tenths(env) if config.note == "tenths" else env


def standardized(config: Any, names: list[str]) -> list[str]:
    return names[:1] if config.note == "first" else names


def make_tiny(observation_space: Any, config: Any, size: int) -> Any:
    return VectorTrunk(observation_space, config, str(size))


class Normed(Trunk):
    """Normalises the features of another trunk."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.trunk = trunk
        self.num_features = trunk.num_features
        self.norm = torch.nn.LayerNorm(trunk.num_features)

    def forward(self, observations: Any) -> Any:
        return self.norm(self.trunk(observations))


def around_trunk(config: Any, network: str, make: Any) -> Any:
    is_wanted = config.note == "narrow" and network == "value"
    return (lambda space: Normed(make(space))) if is_wanted else make


class Narrow(GaussianHead):
    """Has a factor of the means."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.factor = torch.nn.Parameter(torch.ones(1))

    def gaussian(self, features: Any) -> Any:
        return DiagonalGaussian(self.factor * self.mean(features), self.log_std)


def resolve(config: Any) -> dict[str, float]:
    return {"log_std_init": -1.5} if config.note == "narrow" else {}


def make_head(num_features: int, space: Any, config: Any) -> Any:
    is_wanted = config.note == "narrow" and isinstance(space, Box)
    return Narrow(num_features, space.shape[0], config) if is_wanted else None


class Positive(torch.nn.Linear):
    """Has values above 0."""

    def forward(self, features: Any) -> Any:
        return super().forward(features).exp()


def make_value_head(num_features: int, config: Any) -> Any:
    return Positive(num_features, 1) if config.note == "narrow" else None


def width(config: Any) -> int:
    return 1 if config.note else 0


def wrap(config: Any, env: Env) -> Env:
    return CountSteps(env) if config.note else env


def reader(env: Env) -> Any:
    """Read the number of steps."""
    return partial(env.get_wrapper_attr, "count")


def join() -> Peers | None:
    return Counted() if "NOTE" in os.environ else None


class Counted(Peers):
    """Count what would be exchanged."""

    def __init__(self) -> None:
        self.about = {"counted": True}
        self.count = 0

    def gather(self, value: Any) -> list[Any]:
        self.count += 1
        return [value]

    def metrics(self) -> dict[str, float]:
        return {"gathered": self.count}


def launch(given: Any, settings: Any) -> bool:
    """Do nothing but say so, for --note=launch."""
    if NoteFlags.of(settings.config).note != "launch":
        return False
    print("launched")
    return True


class Spoken(Reader):
    """Reads also the words of a text, for who reads numbers."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader.config, reader.spaces)
        self.reader = reader

    def read(self, observation: Any, *arguments: Any) -> Observations:
        if isinstance(observation, str):
            observation = [float(word) for word in observation.split()]
        return self.reader.read(observation, *arguments)


def prepare(parts: Any) -> list[str]:
    note = NoteFlags.of(parts.config).note
    return [f"noted {note}"] if note else []


def make_callbacks(parts: Any) -> list[Callback]:
    return [Note()] if NoteFlags.of(parts.config).note else []


def make_parts(parts: Any) -> dict[str, Part]:
    if not NoteFlags.of(parts.config).pull:
        return {}
    parts.learner.terms.append(pull)
    return {"pull": Pull(parts.learner)}


def pull(learner: Any, minibatch: Any, distribution: Any, values: Any) -> Any:
    """Pull values to 0."""
    found = values.square().mean()
    coefficient = NoteFlags.of(learner.config).pull * learner.remaining
    return coefficient * found, {"pull": found.detach()}


class Pull(Part):
    """End the episodes of training at their first step, add a table to the batch, take values in
    units of 2, and count the updates."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.num_updates = 0

    def env_attributes(self) -> dict[str, Any]:
        return {"x_threshold": 0.0}

    def on_rollout(self, rollout: Any) -> None:
        self.begun = sum(rollout.info.told["begun"].values())

    def restore(self, workers: Any) -> list[int]:
        assert workers.call("begun", "add", [10, 20], 3) == [33]  # of the only worker
        return []

    def on_batch(self, rollout: Any, batch: Any) -> None:
        assert self.begun >= 2
        batch["ones"] = torch.ones_like(batch["values"])

    @contextmanager
    def on_update(self, batch: Any, iteration: int) -> Iterator[None]:
        assert batch["ones"].sum() == len(batch["values"])
        self.learner.value_scale = 2.0
        yield
        assert self.learner.clip_value_coef == 2 * self.learner.clip_coef
        self.num_updates += 1

    def state_dict(self) -> dict[str, Any]:
        return {"num_updates": self.num_updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_updates = state["num_updates"]


class Steps(Spectator):
    """Count what is seen."""

    option: ClassVar[str] = "steps"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.result = f"counted: {path}"

    def see(self, env: Any) -> None:
        self.count += 1

    def __exit__(self, *exception: object) -> None:
        self.path.write_text(str(self.count))


class Told(Guard):
    """Tell what is called, in this process."""

    def call(self, purpose: str, *arguments: Any, **options: Any) -> Any:
        print("called:", purpose)
        return super().call(purpose, *arguments, **options)

    def deadlines(self, config: Any) -> dict[str, Deadline]:
        return {"step": Deadline(1.0, "note")}


def make_guard() -> Guard | None:
    return Told() if "NOTE" in os.environ else None


class Note(Callback):
    """Log the length of the note."""

    def on_iteration(self, run: Any) -> None:
        run.log("note/length", len(str(NoteFlags.of(run.config).note)))
        run.log("note/steps", run.rollout.counts.max())


class Lines(Logger):
    """Write a line for each iteration."""

    def log(self, metrics: Any, histograms: Any) -> None:
        with open(self.run.path / "lines.txt", "a") as file:
            file.write(f"{metrics['iteration']} {math.isfinite(metrics['loss'])}\n")


class Count(Flags):
    """Count the rows of a run."""

    run: str = flag("", "Folder of a run.", nargs=None)

    def __call__(self) -> None:
        print(len((Path(self.run) / "metrics.csv").read_text().splitlines()) - 1, "rows")
