"""Cloning: fit a new run's policy, and its values, to demonstrations.

The policy maximises the likelihood of the demonstrated actions (Pomerleau 1991, "Efficient Training
of Artificial Neural Networks for Autonomous Navigation"); its deviation that of the held-out
actions. The statistics of observations stay those of the demonstrations: where they follow the
first falls of training, the policy sees other numbers in the same state, and is another policy. The
values are fitted to the discounted returns of the demonstrations, so that PPO's first advantages
are not those of a value function that knows nothing."""

import math
import time
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy import ndarray
from torch import Tensor

from ppo.algorithm.flat_weights import make_optimizer, mask_of
from ppo.components import Components
from ppo.config.config import Config
from ppo.envs.normalize import NormalizeReward
from ppo.envs.seeding import Stream, seed_sequence
from ppo.envs.spaces import action_converter, leaves, split_columns
from ppo.extras.demonstrations.flags import CloningFlags
from ppo.extras.demonstrations.format import load_demonstrations, unusable
from ppo.extras.demonstrations.replay import Examples, replay
from ppo.models.distributions import Distribution
from ppo.models.observation_parts import images_of
from ppo.models.tensors import as_tensor
from ppo.peers import Peers
from ppo.run.checkpoint import copy_state
from ppo.system.output import show
from ppo.system.process import flush_denormals
from ppo.system.state_dict import State, add_prefix, select_prefix

LEARNING_RATE = 3e-3  # decays to 0
IMAGE_LEARNING_RATE = 1e-3
BATCH_SIZE = 32  # rows, or whole episodes of a recurrent model until they have as many
EVALUATION_ROWS = 1024
LOWEST_LOG_STD = -2.0  # of continuous actions, so that others are tried
LARGEST_RETURN = 1e15  # of which float32 holds the squares of errors and of gradients
SECONDS_BETWEEN_LINES = 5
ALONE = Peers().gather  # of demonstrations, which only the first process has read


def clone(parts: Components) -> str:
    """Fit the model of a new run to --demonstrations; return a note for the user.

    The first process does it, and the others take over its result. Raises ConfigError if the
    demonstrations cannot be used, also if a loss is not finite."""
    before = copy_state(parts.state_dict())
    state, note = parts.peers.call_in_first(partial(_clone_here, parts))
    parts.load_state_dict({**before, **state})
    return note


def _clone_here(parts: Components) -> tuple[State, str]:
    """Return the state of the cloned parts of a run, and a note for the user."""
    config = parts.config
    flags = CloningFlags.of(config)
    name = str(flags.demonstrations)
    demonstrations = load_demonstrations(name)
    try:
        examples = replay(config, parts.spaces, demonstrations)
        cloning = Cloning(parts, examples)
    except ValueError as error:
        raise unusable(name, error) from error
    cloning.run(flags.clone_epochs)
    cloning.fit_deviation()
    note = (
        f"cloned {len(examples.was_cut)} episodes, {examples.is_step.sum():,} steps, of {name}, "
        f"{cloning.describe_score()}"
    )
    cloned = {
        **add_prefix("model", select_prefix("model", parts.learner.state_dict())),
        **add_prefix("normalize_observation", vars(parts.normalize_observation.statistics)),
        **add_prefix("normalize_reward", vars(parts.normalize_reward.statistics)),
    }
    return copy_state(cloned), note


class Score(NamedTuple):
    """How well the most likely actions are the demonstrated ones.

    loss: minus the mean log-probability; accuracy: share of the choices that are the same, error:
    mean distance of the numbers, in those of the environment; None without choices or numbers."""

    loss: float
    accuracy: float | None
    error: float | None

    def __str__(self) -> str:
        texts = [f"loss {self.loss:.3g}"]
        if self.accuracy is not None:
            texts.append(f"accuracy {self.accuracy:.1%}")
        if self.error is not None:
            texts.append(f"error {self.error:.3g}")
        return ", ".join(texts)


class Cloning:
    """Fit a run's model to examples, by an Adam and random numbers of its own.

    parts: of the run, whose statistics of observations become those of the examples, for good;
    those of rewards begin with them. A tenth of the episodes, at least one of several, is held out.
    Raises ValueError for rewards that are too large."""

    def __init__(self, parts: Components, examples: Examples) -> None:
        config = parts.config
        self.config = config
        self.action_space = parts.spaces.actions
        self.learner = parts.learner
        self.model = parts.learner.model
        self.generator = np.random.default_rng(seed_sequence(config.seed, Stream.CLONING))
        is_step = examples.is_step
        self.was_cut = examples.was_cut
        self.episodes = examples.episodes
        (self.last_rows,) = np.nonzero(~is_step)
        is_held_out = self._draw_held_out(len(self.was_cut))[self.episodes]
        (self.learned,) = np.nonzero(is_step & ~is_held_out)
        (self.held_out,) = np.nonzero(is_step & is_held_out)

        parts.normalize_observation.keep(examples.observations[is_step], ALONE)
        observations = parts.normalize_observation(examples.observations)
        if observations.dtype == np.float64:
            observations = observations.astype(np.float32)
        self.tables = {
            "observations": as_tensor(observations),
            "actions": as_tensor(examples.actions),
            "is_step": as_tensor(is_step),
            "starts": as_tensor(np.concatenate([[True], ~is_step[:-1]])),
        }
        if examples.action_masks is not None:
            self.tables["masks"] = as_tensor(examples.action_masks)
        self.has_rewards = examples.rewards is not None
        if examples.rewards is not None:
            rewards = self._scale_rewards(parts.normalize_reward, examples.rewards)
            self.returns, self.discounts = known_returns(
                rewards, is_step, self.was_cut, config.gamma
            )
            if (largest := np.abs(self.returns).max()) > LARGEST_RETURN:
                raise ValueError(
                    f"discounted sums of its rewards are as large as {largest:.3g}: scale them"
                )
        has_images = images_of(parts.spaces.observations)
        self.learning_rate = IMAGE_LEARNING_RATE if has_images else LEARNING_RATE
        parameters = self.model.named_parameters()
        self.deviations = {name: x for name, x in parameters if name.endswith("log_std")}
        self.held = mask_of(self.model, [*self.deviations]) if self.deviations else None
        if self.learner.held is not None:
            others = self.learner.held
            self.held = others if self.held is None else self.held | others
        self.optimizer = make_optimizer(
            Config(), self.learner.weights, self.learner.gradients, self.learning_rate
        )

    def _draw_held_out(self, num_episodes: int) -> ndarray:
        """Return which episodes (E,) are held out."""
        is_held_out = np.zeros(num_episodes, np.bool_)
        if num_episodes > 1:
            order = self.generator.permutation(num_episodes)
            is_held_out[order[: max(1, num_episodes // 10)]] = True
        return is_held_out

    def _scale_rewards(self, statistics: NormalizeReward, rewards: ndarray) -> ndarray:
        """Return rewards (R,) as training would scale them, and put their statistics in those of
        the run, which has none yet."""
        if self.config.clip_rewards:
            return np.sign(rewards)
        is_last_step = np.zeros(len(rewards), np.bool_)
        is_last_step[self.last_rows - 1] = True
        steps = np.flatnonzero(self.tables["is_step"].numpy())
        scale = NormalizeReward(1, self.config.gamma, self.config.normalize_rewards)
        scaled = np.zeros(len(rewards), np.float32)
        scaled[steps] = scale.update_and_scale(
            rewards[steps, None].astype(np.float32), is_last_step[steps, None], ALONE
        )[:, 0]
        statistics.statistics.load_state_dict(vars(scale.statistics))
        return scaled

    @flush_denormals()
    def run(self, num_epochs: int) -> None:
        """Clone. Raises ConfigError if a loss or a weight is not finite."""
        start = time.monotonic()
        shown = start
        for epoch in range(num_epochs):
            loss = self._run_epoch(epoch, num_epochs)
            if not (np.isfinite(loss) and self.learner.weights.isfinite().all()):
                reason = f"the loss is not finite in epoch {epoch + 1}: {self._describe_largest()}"
                raise unusable(str(CloningFlags.of(self.config).demonstrations), reason)
            now = time.monotonic()
            if self.config.verbose and now - shown > SECONDS_BETWEEN_LINES:
                shown = now
                left = (now - start) / (epoch + 1) * (num_epochs - epoch - 1)
                show(
                    f"cloning: epoch {epoch + 1} of {num_epochs}, loss {loss:.3g}, "
                    f"{self.describe_score()}, {left:.0f} s left"
                )
        self.learner.gradients.zero_()

    def _describe_largest(self) -> str:
        """Say which part of the examples, as the model reads them, has the largest numbers."""
        parts = {name: self.tables[name].abs() for name in ("observations", "actions")}
        largest = {name: float(table.max()) for name, table in parts.items()}
        name = max(largest, key=largest.__getitem__)
        return f"its {name} are as large as {largest[name]:.3g}"

    def _run_epoch(self, epoch: int, num_epochs: int) -> float:
        """Take a gradient step on each minibatch; return the mean loss."""
        returns = self.returns_now() if self.has_rewards else None
        minibatches = self.minibatches(self.learned, BATCH_SIZE, self.generator)
        losses = []
        self.model.train()
        for done, rows in enumerate(minibatches):
            losses.append(self.compute_gradients(rows, returns))
            remaining = 1 - (epoch + done / len(minibatches)) / num_epochs
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate * remaining
            self.optimizer.step()
        self.model.eval()
        return torch.stack(losses).mean().item()

    def minibatches(
        self, rows: ndarray, size: int, generator: np.random.Generator | None = None
    ) -> list[ndarray]:
        """Split rows into parts of a size; for a recurrent model, all rows of their episodes into
        whole episodes of at least so many rows. generator: shuffles them; None: in order."""
        is_recurrent = bool(self.model.state_size)
        units = np.unique(self.episodes[rows]) if is_recurrent else rows
        if generator:
            units = generator.permutation(units)
        if not is_recurrent:
            return np.split(units, range(size, len(units), size))
        parts = []
        part: list[int] = []
        for episode in units:
            last = self.last_rows[episode]
            first = self.last_rows[episode - 1] + 1 if episode else 0
            part += range(first, last + 1)
            if len(part) >= size or episode == units[-1]:
                parts.append(np.array(part))
                part = []
        return parts

    def forward(self, rows: ndarray) -> tuple[Distribution, Tensor, dict[str, Tensor]]:
        """Return the distributions and values of some rows, and their tables."""
        index = torch.from_numpy(rows)
        device = self.learner.weights.device
        batch = {name: table[index].to(device) for name, table in self.tables.items()}
        inputs = [batch["observations"]]
        if self.model.state_size:
            states = torch.zeros(1, self.model.state_size, device=device)
            inputs += [states, batch["starts"]]
        distribution, values = self.model(*inputs)
        if "masks" in batch:
            distribution = distribution.masked(batch["masks"])
        return distribution, values, batch

    def compute_gradients(self, rows: ndarray, returns: ndarray | None) -> Tensor:
        """Write the gradient of a minibatch's loss to the learner's; return the policy's loss.

        returns: (R,), to fit the values to; None: they stay as they are."""
        gradients = self.learner.gradients
        gradients.zero_()
        distribution, values, batch = self.forward(rows)
        is_step = batch["is_step"]
        policy_loss = -distribution.log_prob(batch["actions"])[is_step].mean()
        loss = policy_loss
        if returns is not None:
            wanted = torch.from_numpy(returns[rows]).to(values)
            errors = (values - wanted)[is_step]
            loss = policy_loss + self.config.value_coef * 0.5 * errors.square().mean()
        torch.autograd.backward(loss)
        if self.held is not None:
            gradients[self.held] = 0
        return policy_loss.detach()

    @torch.no_grad()
    def returns_now(self) -> ndarray:
        """Return the discounted return (R,) of each row: what is known of it, and in an episode
        that was cut off the present value of its last observation, as PPO bootstraps it."""
        values = np.zeros(len(self.returns))
        is_wanted = np.zeros(len(values), np.bool_)
        is_wanted[self.last_rows[self.was_cut]] = True
        for rows in self.minibatches(np.flatnonzero(is_wanted), EVALUATION_ROWS):
            if len(rows):
                values[rows] = self.forward(rows)[1].cpu().numpy()
        return self.returns + self.discounts * values[self.last_rows[self.episodes]]

    @torch.no_grad()
    def fit_deviation(self) -> None:
        """Give continuous actions the deviation that makes the held-out ones most likely, from
        LOWEST_LOG_STD to what they have: what is known less well is explored more.

        All keep their own if no episode is held out, and those of another shape, as gSDE's."""
        if not len(self.held_out) or not self.deviations:
            return
        is_number = [
            isinstance(leaf, Box)
            for _, leaf in leaves(self.action_space)
            for _ in range(math.prod(leaf.shape))
        ]
        sizes = [parameter.numel() for parameter in self.deviations.values()]
        if sum(sizes) != sum(is_number):  # a model of one's own has others
            return
        held = self.learner.held
        _, actions, wanted = self.predict(self.held_out)
        squares = (actions - wanted)[:, is_number].square().mean(0)
        fitted = (squares.log() / 2).clamp(min=LOWEST_LOG_STD).split(sizes)
        for (name, parameter), log_std in zip(self.deviations.items(), fitted, strict=True):
            if held is None or not held[mask_of(self.model, [name])].all():
                parameter.copy_(torch.minimum(parameter, log_std.to(parameter)))

    @torch.no_grad()
    def predict(self, rows: ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Return of the S steps of some rows, on the CPU, minus the log-probability (S,) of the
        demonstrated action, the most likely one (S, D), and the demonstrated one (S, D)."""
        found = []
        for part in self.minibatches(rows, EVALUATION_ROWS):
            distribution, _, batch = self.forward(part)
            actions = batch["actions"]
            columns = -distribution.log_prob(actions), distribution.mode(), actions
            found.append([x[batch["is_step"]].cpu() for x in columns])
        losses, modes, demonstrated = zip(*found, strict=True)
        return torch.cat(losses), torch.cat(modes), torch.cat(demonstrated)

    def score(self) -> Score:
        """Score the model on the held-out episodes; if there are none, on all."""
        rows = self.held_out if len(self.held_out) else self.learned
        losses, *columns = (x.numpy() for x in self.predict(rows))
        choices, distances = [], []
        split = (split_columns(self.action_space, actions) for actions in columns)
        for (leaf, own), (_, wanted) in zip(*split, strict=True):
            if isinstance(leaf, Box):
                convert = action_converter(
                    leaf, self.config.squash_actions, self.config.scale_actions
                )
                distances.append(np.abs(convert(own) - convert(wanted), dtype=np.float64))
            else:
                choices.append(own == wanted)
        return Score(
            float(losses.mean()),
            float(np.concatenate([x.ravel() for x in choices]).mean()) if choices else None,
            float(np.concatenate([x.ravel() for x in distances]).mean()) if distances else None,
        )

    def describe_score(self) -> str:
        """Return the score in words."""
        where = "held out" if len(self.held_out) else "of the only episode"
        return f"{where}: {self.score()}"


def known_returns(
    rewards: ndarray, is_step: ndarray, was_cut: ndarray, gamma: float
) -> tuple[ndarray, ndarray]:
    """Return the discounted sum (R,) of the rewards from each row to the end of its episode, and by
    how much (R,) the value of the episode's last observation is discounted there, which is 0 if the
    episode terminated.

    rewards: (R,); is_step: (R,), False in the last row of each episode; was_cut: (E,)."""
    returns = np.zeros(len(rewards))
    discounts = np.zeros(len(rewards))
    total = discount = 0.0
    cuts = iter(was_cut[::-1].tolist())
    for row in reversed(range(len(rewards))):
        if is_step[row]:
            total = rewards[row] + gamma * total
            discount *= gamma
        else:
            total = 0.0
            discount = float(next(cuts))
        returns[row] = total
        discounts[row] = discount
    return returns, discounts
