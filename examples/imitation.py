"""Imitate recorded episodes before training.

python examples/record.py expert.npz
python main.py CartPole-v1 --critic_warmup=10 \
    "--callback=examples.imitation:Cloning(file='expert.npz')"

The policy learns to make the recorded actions likely (Pomerleau 1991, "Efficient Training of
Artificial Neural Networks for Autonomous Navigation"). Values are not learned."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Tuple

from ppo.callbacks import Callback
from ppo.checkpoint import State
from ppo.envs.make import Spaces, check_finite
from ppo.envs.normalize import EPSILON, NormalizeObservation
from ppo.envs.observations import NUMBERS, Reader
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


@dataclass
class Cloning(Callback):
    """Imitate the episodes of a file (.npz) in a new run, before it trains. Raises ConfigError if
    the file cannot be used."""

    file: str
    epochs: int = 20
    is_done: bool = False

    def on_start(self, run: Run) -> None:
        if self.is_done:
            return
        try:
            with np.load(self.file, allow_pickle=False) as file:
                tables = read(run.spaces, dict(file))
        except Exception as error:  # what damaged files make of zipfile and numpy
            raise ConfigError(f"{self.file} cannot be imitated ({reason(error)})") from error
        score = clone(run, tables, self.epochs)
        if not np.isfinite(score):
            raise ConfigError(f"the loss of {self.file} is not finite: scale its numbers")
        run.publish()
        run.note(f"{self.file} is imitated: held-out log-probability {score:.3g}")
        self.is_done = True

    def state_dict(self) -> State:
        return {"is_done": self.is_done}

    def load_state_dict(self, state: State) -> None:
        self.is_done = state["is_done"]


def read(spaces: Spaces, file: Tables) -> Tables:
    """Return tables (S, ...) as of a batch, not normalized, with the starts (S,) of episodes.

    file: observations (S + E, *shape) and actions (S, *shape) as the environment has them, and
    action_masks (S + E, M) if it has any; terminations and truncations (S,), of which one is 1 at
    the last step of each episode. Parts of nested observations have tables of their own, such as
    observations.arm. Raises ValueError or LookupError for what does not fit."""
    ends = np.logical_or(file["terminations"], file["truncations"])
    if not ends[-1:].any():
        raise ValueError("its last step does not end an episode")
    count = len(ends)
    starts = np.roll(ends, 1)
    episodes = np.cumsum(starts) - 1
    rows = np.arange(count) + episodes  # each episode has an observation more
    actions = inverse(spaces.actions, file["actions"])
    if len(actions) != count:
        raise ValueError(f"it has {len(actions)} actions in {count} steps")
    tables: Tables = {"actions": actions, "starts": starts}
    for name, box in spaces.layout.tables.items():
        shape = (count, *box.shape)
        tables[name] = np.zeros(shape, box.dtype)
    for step, row in enumerate(rows):
        if starts[step]:
            reader = Reader(spaces.layout)
        observation = nested(spaces.observations, file, row)
        for name, values in reader(observation).items():
            tables[name][step] = values
    if spaces.has_masks and "action_masks" in file:
        to_mask = mask_converter(spaces.actions)
        given = file["action_masks"][rows]
        masks = np.array([*map(to_mask, given)])
        choices = masks.reshape(*actions.shape, -1)
        allowed = np.take_along_axis(choices, actions[..., None], -1)
        if not allowed.all():
            raise ValueError("an action is not allowed by its mask")
        tables["action_masks"] = masks
    check_finite(tables, "it")
    return tables


def nested(space: Any, file: Tables, row: int, name: str = "observations") -> Any:
    """Return an observation of a space, with the parts that hold numbers."""
    if isinstance(space, (Dict, Tuple)):
        found = {}
        parts: Any = enumerate(space)
        if isinstance(space, Dict):
            parts = space.items()
        for key, part in parts:
            found[key] = nested(part, file, row, f"{name}.{key}")
        return found
    return file[name][row] if holds_numbers(space) else None


def inverse(space: Any, given: Any) -> Any:
    """Return the policy's actions (n, D) that ppo.envs.spaces.action_converter turns into these."""
    actions = given.astype(space.dtype)
    if not all(map(space.contains, actions)):
        raise ValueError(f"actions must be in {space}")
    columns = actions.reshape(len(actions), -1)
    if not isinstance(space, Box):
        starts = np.ravel(getattr(space, "start", 0))
        return columns.astype(np.int64) - starts
    shift, factor = map(np.ravel, box_scale(space))
    factor[factor == 0] = 1
    columns = (columns - shift) / factor
    return columns.astype(np.float32)


def clone(run: Run, tables: Tables, epochs: int) -> float:
    """Fit a run's policy to tables of steps; return the mean log-probability of the actions in a
    tenth of the episodes, which is held out. Statistics of observations become those of the steps,
    and stay."""
    learner = run.learner
    model: Any = run.model
    if run.normalize.enabled:
        keep_statistics(run.normalize, tables[NUMBERS])
    batch = {}
    for name, table in run.normalize.tables(tables).items():
        batch[name] = learner.table(table)
    episodes = np.cumsum(tables["starts"]) - 1
    seed = [run.config.seed, 6]  # no stream of ppo.envs.seeding
    random = np.random.default_rng(seed)
    num_episodes = episodes[-1] + 1
    order = random.permutation(num_episodes)
    num_tested = max(1, num_episodes // 10)
    num_tested = min(num_tested, num_episodes - 1)
    is_learned = np.isin(episodes, order[num_tested:])
    learned = np.flatnonzero(is_learned)
    tested = np.flatnonzero(~is_learned)
    if not num_tested:
        tested = learned
    log_stds = []
    for name, parameter in model.named_parameters():
        if name.endswith("log_std"):
            log_stds.append(parameter)
    has_images = bool(run.spaces.layout.images)
    learning_rate = LEARNING_RATES[has_images]
    optimizer = Adam(learner.parameter, learning_rate)
    model.train()
    with flush_denormals():
        for epoch in range(epochs):
            if model.state_size:
                whole = random.permutation(order[num_tested:])
                parts = [np.flatnonzero(episodes == number) for number in whole]
            else:
                steps = random.permutation(learned)
                last = len(steps) - 1  # a lone step joins those before it
                cuts = range(BATCH_SIZE, last, BATCH_SIZE)
                parts = np.split(steps, cuts)
            for index, rows in enumerate(parts):
                learner.gradients.zero_()
                loss = -log_likelihood(run, batch, rows)
                torch.autograd.backward(loss)
                for parameter in log_stds:  # training explores as much as before
                    parameter.grad.zero_()
                passed = epoch + index / len(parts)
                remaining = 1 - passed / epochs
                optimizer.param_groups[0]["lr"] = learning_rate * remaining
                optimizer.step()
    model.eval()
    with torch.no_grad():
        return float(log_likelihood(run, batch, tested))


def keep_statistics(normalize: NormalizeObservation, numbers: Any) -> None:
    """Normalize by the statistics of these numbers (S, K) from now on, whatever follows."""
    normalize.update(numbers)
    statistics = normalize.statistics
    is_constant = np.ptp(numbers, 0) < EPSILON
    statistics.variance[is_constant] = 1
    statistics.count = np.float64(KEPT)
    normalize.publish()


def log_likelihood(run: Run, batch: Tables, rows: Any) -> Any:
    """Return the mean log-probability of the recorded actions in some steps."""
    part = Learner.gather(run.learner, batch, rows)
    inputs = [run.spaces.layout.named(part)]
    if size := run.model.state_size:
        states = torch.zeros(1, size, device=run.config.device)
        inputs += [states, part["starts"]]
    distribution, _ = run.model(*inputs)
    if "action_masks" in part:
        distribution = distribution.masked(part["action_masks"])
    return distribution.log_prob(part["actions"]).mean()
