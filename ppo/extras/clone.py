"""Imitate recorded episodes: --demonstrations and ppo clone.

The policy learns to make the recorded actions likely (Pomerleau 1991, "Efficient Training of
Artificial Neural Networks for Autonomous Navigation"). Values are not learned."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Tuple

from ppo.callbacks import Callback
from ppo.checkpoint import State
from ppo.config import flag
from ppo.envs.make import Spaces, check_finite
from ppo.envs.normalize import EPSILON
from ppo.envs.observations import NUMBERS, Reader
from ppo.envs.seeding import Stream
from ppo.envs.spaces import box_scale, holds_numbers, mask_converter
from ppo.errors import ConfigError, reason
from ppo.learner import Learner
from ppo.optimizer import Adam
from ppo.process import flush_denormals
from ppo.run import Run

LEARNING_RATES = 3e-3, 1e-3  # without and with images; they decay to 0
BATCH_SIZE = 32  # steps; of recurrent networks, one episode
KEPT = 1e15  # samples, which outweigh any further ones
Tables = dict[str, Any]  # arrays


@dataclass(frozen=True)
class Flags:
    epochs: int = flag(20, 1, 1e6)
    """Number of epochs over the recorded episodes."""


def main(words: list[str], options: Flags, flags: dict[str, Any]) -> None:
    """Make a run that imitates recorded episodes and does not train. flags: of the run."""
    if len(words) != 2:
        raise ConfigError("clone needs two names: ppo clone ENV episodes.npz")
    from ppo.trainer import run_training

    flags |= {"env_name": words[0], "total_steps": 0}
    run_training(flags, [Cloning(words[1], options.epochs)])


@dataclass
class Cloning(Callback):
    """Raises ConfigError if the file cannot be used."""

    demonstrations: str | None = None
    """Recorded episodes (.npz) whose actions a new run learns to imitate before it trains."""
    epochs: int = 20
    is_done: bool = False

    def on_start(self, run: Run) -> None:
        if self.demonstrations is None or self.is_done:
            return
        name = f"--demonstrations={self.demonstrations}"
        try:
            with np.load(self.demonstrations, allow_pickle=False) as file:
                tables = read(run.spaces, dict(file))
        except Exception as error:  # what damaged files make of zipfile and numpy
            raise ConfigError(f"{name} cannot be used ({reason(error)})") from error
        score = clone(run, tables, self.epochs)
        if not np.isfinite(score):
            raise ConfigError(f"{name} leads to a loss that is not finite: scale its numbers")
        run.publish()
        run.note(f"{name} is imitated: held-out log-probability {score:.3g}")
        self.is_done = True

    def state_dict(self) -> State:
        return {"is_done": self.is_done}

    def load_state_dict(self, state: State) -> None:
        self.is_done = state["is_done"]


def read(spaces: Spaces, file: Tables) -> Tables:
    """Return tables (S, ...) as of a batch, not normalised, with the starts (S,) of episodes.

    file: observations (S + E, *shape) and actions (S, *shape) as the environment has them, and
    action_masks (S + E, M) if it has any; terminations and truncations (S,), of which one is 1 at
    the last step of each episode. Parts of nested observations have tables of their own, such as
    observations.arm. Raises ValueError or LookupError for what does not fit."""
    ends = (file["terminations"] != 0) | (file["truncations"] != 0)
    count = len(ends)
    if not count or not ends[-1]:
        raise ValueError("its last step does not end an episode")
    starts = np.roll(ends, 1)
    rows = np.arange(count) + np.cumsum(starts) - 1  # of observations, one more in each episode
    actions = inverse(spaces, file["actions"])
    if len(actions) != count:
        raise ValueError(f"it has {len(actions)} actions in {count} steps")
    tables: Tables = {"actions": actions, "starts": starts}
    for name, box in spaces.layout.tables.items():
        tables[name] = np.zeros((count, *box.shape), box.dtype)
    for step, row in enumerate(rows):
        if starts[step]:
            reader = Reader(spaces.layout)
        for name, values in reader(nested(spaces.observations, file, row)).items():
            tables[name][step] = values
    if spaces.has_masks and "action_masks" in file:
        to_mask = mask_converter(spaces.actions)
        masks = np.stack([to_mask(mask) for mask in file["action_masks"][rows]])
        choices = masks.reshape(*actions.shape, -1)
        if not np.take_along_axis(choices, actions[..., None], -1).all():
            raise ValueError("an action is not allowed by its mask")
        tables["action_masks"] = masks
    check_finite(tables, "it")
    return tables


def nested(space: Any, file: Tables, row: int, name: str = "observations") -> Any:
    """Return an observation of a space, with the parts that hold numbers."""
    if isinstance(space, (Dict, Tuple)):
        keys: Any = space if isinstance(space, Dict) else range(len(space))
        return {key: nested(space[key], file, row, f"{name}.{key}") for key in keys}
    return file[name][row] if holds_numbers(space) else None


def inverse(spaces: Spaces, given: Any) -> Any:
    """Return the policy's actions (n, D) that ppo.envs.spaces.action_converter turns into these."""
    space = spaces.actions
    actions = given.astype(space.dtype)
    if not all(map(space.contains, actions)):
        raise ValueError(f"actions must be in {space}")
    columns = actions.reshape(len(actions), -1)
    if not isinstance(space, Box):
        return columns.astype(np.int64) - np.ravel(getattr(space, "start", 0))
    shift, factor = map(np.ravel, box_scale(space))
    columns = (columns - shift) / np.where(factor > 0, factor, 1)
    return columns.astype(np.float32)


def clone(run: Run, tables: Tables, epochs: int) -> float:
    """Fit a run's policy to tables of steps; return the mean log-probability of the actions in a
    tenth of the episodes, which is held out. Statistics of observations become those of the steps,
    and stay."""
    learner = run.learner
    model: Any = run.model
    if run.normalize.enabled:
        numbers = tables[NUMBERS]
        run.normalize.update(numbers)
        statistics = run.normalize.statistics
        statistics.variance[np.ptp(numbers, 0) < EPSILON] = 1
        statistics.count = np.float64(KEPT)
        run.normalize.publish()
    normalized = run.normalize.tables(tables)
    batch = {name: learner.table(x) for name, x in normalized.items()}
    random = np.random.default_rng([run.config.seed, Stream.IMITATION])
    episodes = np.cumsum(tables["starts"]) - 1
    order = random.permutation(episodes[-1] + 1)
    num_tested = min(len(order) - 1, max(1, len(order) // 10))
    is_tested = np.isin(episodes, order[:num_tested])
    learned = np.flatnonzero(~is_tested)
    learning_rate = LEARNING_RATES[bool(run.spaces.layout.images)]
    optimizer = Adam(learner.parameter, learning_rate)
    model.train()
    with flush_denormals():
        for epoch in range(epochs):
            if model.state_size:
                whole = random.permutation(order[num_tested:])
                parts = [np.flatnonzero(episodes == x) for x in whole]
            else:
                steps = random.permutation(learned)
                end = len(steps) - 1  # a lone step joins those before it
                parts = np.split(steps, range(BATCH_SIZE, end, BATCH_SIZE))
            for index, rows in enumerate(parts):
                learner.gradients.zero_()
                distribution, actions = forward(run, batch, rows)
                loss = -distribution.log_prob(actions).mean()
                torch.autograd.backward(loss)
                for name, parameter in model.named_parameters():
                    if name.endswith("log_std"):  # training explores as much as before
                        parameter.grad.zero_()
                remaining = 1 - (epoch + index / len(parts)) / epochs
                optimizer.param_groups[0]["lr"] = learning_rate * remaining
                optimizer.step()
    model.eval()
    tested = np.flatnonzero(is_tested) if num_tested else learned
    with torch.no_grad():
        distribution, actions = forward(run, batch, tested)
        return float(distribution.log_prob(actions).mean())


def forward(run: Run, batch: Tables, rows: Any) -> Any:
    """Return the policy's distributions in some steps, and the actions (b, D) to imitate."""
    part = Learner.gather(run.learner, batch, rows)
    inputs = [run.spaces.layout.named(part)]
    if size := run.model.state_size:
        states = torch.zeros(1, size).to(run.config.device)
        inputs += [states, part["starts"]]
    distribution, _ = run.model(*inputs)
    if "action_masks" in part:
        distribution = distribution.masked(part["action_masks"])
    return distribution, part["actions"]
