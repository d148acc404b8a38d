"""Learning from one rollout: advantages, then epochs of minibatch steps on the PPO objective."""

import math
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ppo.algorithm import losses
from ppo.algorithm.adam import Adam
from ppo.algorithm.gae import generalized_advantages
from ppo.algorithm.rollout import Batch, Minibatch, Rollout, minibatches
from ppo.config.config import Config, scheduled
from ppo.errors import ConfigError, NotFinite
from ppo.system.distributed import SINGLE_PROCESS, SingleProcess

ADAM_EPSILON = 1e-5
KL_TOLERANCE = 1.5
ADAPTIVE_KL = 0.01  # what an adaptive learning rate aims at, if not at target_kl
ADAPTIVE_RATES = (1e-5, 1e-2)
MOST_VALUES = 10_000  # in a histogram
MOST_SKIPPED = 3  # gradient steps in a row
RECORDED = (
    "observations",
    "actions",
    "states",
    "action_masks",
    "features",
)  # what is read of a rollout's tables


class Histograms(NamedTuple):
    """What histograms are made of, by name, each (n,); and an image (H, W) uint8, if images are learned from."""

    values: dict[str, np.ndarray]
    image: np.ndarray | None


class Coefficients(NamedTuple):
    """The scheduled coefficients of the objective, as they are in one iteration."""

    clip: float
    clip_value: float | None
    entropy: float


class Learner:
    """Owns the optimiser, and moves the model's parameters and gradients into two vectors (P,), weights and gradients:
    to publish_weights, to clip or to step is then one operation each."""

    ranks: SingleProcess = SINGLE_PROCESS  # that learn the same, from other environments

    def __init__(self, model: Any, config: Config) -> None:
        if model.state_size and not config.batch_size and config.num_minibatches > config.num_envs:
            fix = f"give at most --num_envs={config.num_envs}, for the model learns from whole sequences of them"
            raise ConfigError(f"--num_minibatches={config.num_minibatches}: {fix}")
        self.model, self.config = model, config
        if config.compile:
            self.loss = torch.compile(self.loss)  # type: ignore[method-assign]
        self.weights = parameters_to_vector(model.parameters()).detach()
        self.gradients = torch.zeros_like(self.weights)
        vector_to_parameters(self.weights, model.parameters())
        sizes = [parameter.numel() for parameter in model.parameters()]
        for parameter, part in zip(model.parameters(), self.gradients.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        self.parameters = nn.Parameter(self.weights)
        self.parameters.grad = self.gradients
        is_adam, on_device = config.optimizer == Config.optimizer, self.weights.device.type
        options: dict[str, Any] = {"eps": ADAM_EPSILON} if is_adam else {}
        self._schedule(1.0)
        self.learning_rate = scheduled(config.learning_rate, 1.0)
        self.num_skipped = 0  # steps in a row
        try:
            make = (
                Adam if is_adam and on_device in ("cpu", "cuda") else resolve_name(config.optimizer)
            )
            self.optimizer = make([self.parameters], lr=self.learning_rate, **options)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            fix = "give a class of torch.optim, or one that is made as they are"
            raise ConfigError(
                f"--optimizer={config.optimizer} cannot be used ({error}): {fix}"
            ) from error

    def make_batch(
        self,
        rollout: Rollout,
        observations: np.ndarray,
        rewards: np.ndarray,
        last_observations: Sequence[tuple],
        weights: np.ndarray | None = None,
    ) -> Batch:
        """What is learned from: the rollout's transitions with their values, advantages and returns.

        observations (T + 1, N, *observation), rewards (T, N): the rollout's, as the learner is to see them.
        last_observations: likewise, of each truncated episode (step, environment, true last observation, state).
        weights (P,): those that acted, by which all is evaluated; None for the present ones.
        """
        if weights is None:
            return self._make_batch(rollout, observations, rewards, last_observations)
        present = self.weights.clone()
        self.weights.copy_(torch.from_numpy(weights))
        try:
            return self._make_batch(rollout, observations, rewards, last_observations)
        finally:
            self.weights.copy_(present)

    @torch.no_grad()
    def _make_batch(
        self,
        rollout: Rollout,
        observations: np.ndarray,
        rewards: np.ndarray,
        last_observations: Sequence[tuple],
    ) -> Batch:
        tables = {**vars(rollout), "observations": observations}
        recorded = {name: tables[name][: len(rewards)] for name in RECORDED if tables[name].size}
        batch = {name: self._flat(table) for name, table in recorded.items()}
        batch["log_probs"], batch["values"] = self._log_probs_and_values(batch)
        batch.pop("features", None)  # they will be of other weights
        if "states" in batch:
            dones = rollout.terminations | rollout.truncations
            batch["starts"] = self._flat(np.concatenate([np.zeros_like(dones[:1]), dones[:-1]]))
        values = batch["values"].cpu().numpy().reshape(rewards.shape)
        next_values = np.concatenate(
            [values[1:], self._predict_values(observations[-1], rollout.states[-1])[None]]
        )
        if last_observations:
            steps, environments, *met = zip(*last_observations, strict=True)
            next_values[steps, environments] = self._predict_values(*map(np.stack, met))
        batch["advantages"] = self._flat(
            generalized_advantages(
                rewards,
                values,
                next_values,
                terminations=rollout.terminations,
                truncations=rollout.truncations,
                gamma=self.config.gamma,
                gae_lambda=self.config.gae_lambda,
            )
        )
        return {**batch, "returns": batch["advantages"] + batch["values"]}

    def learn(self, batch: Batch, iteration: int, shuffle_seed: int) -> dict[str, float]:
        """Take an iteration's gradient steps; iteration counts from 1. Returns metrics, averaged over them. Steps of
        a loss or a gradient that is not finite are left out. Raises NotFinite for several in a row, or for weights."""
        config = self.config
        self._schedule(1 - (iteration - 1) / config.iterations)
        adapts = str(config.learning_rate).startswith("adaptive:")
        self.learning_rate = (
            self.learning_rate if adapts else scheduled(config.learning_rate, self.remaining)
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        history: list[dict[str, Any]] = []
        num_steps = 0
        advantages = batch["advantages"]
        if config.normalize_advantages == "rollout":
            (moments,) = self.ranks.moments(
                advantages, [Minibatch(torch.arange(len(advantages)), 1.0)]
            )
            batch = {**batch, "advantages": losses.standardize(advantages, moments)}
        sizes, length = (
            (config.num_steps, config.num_envs),
            config.num_steps if "states" in batch else 1,
        )
        ways = (config.num_epochs, config.num_minibatches, config.batch_size, length, shuffle_seed)
        parts = minibatches(sizes, *ways, self.ranks.columns(config.num_envs))
        is_standardized = config.normalize_advantages == "minibatch"
        all_moments = (
            self.ranks.moments(advantages, parts) if is_standardized else [None] * len(parts)
        )
        for part, moments in zip(parts, all_moments, strict=True):
            rows = part.rows.to(advantages.device)
            minibatch = {name: tensor.index_select(0, rows) for name, tensor in batch.items()}
            if is_standardized:
                minibatch["advantages"] = self.standardize(minibatch["advantages"], moments)
            metrics = self.ranks.all_reduce_gradients(
                self.gradients, self.compute_gradients(minibatch), part.share
            )
            if (
                history
                and config.target_kl is not None
                and metrics["approx_kl"] > KL_TOLERANCE * config.target_kl
            ):
                break
            metrics["grad_norm"] = self._clip_gradients()
            num_steps += 1
            if math.isfinite(metrics["loss"] + metrics["grad_norm"]):
                self.optimizer.step()
                self.num_skipped = 0
                history.append(metrics)
            else:
                self.num_skipped += 1
                if self.num_skipped == MOST_SKIPPED:
                    self._give_up(
                        iteration, f"the loss or its gradient, {MOST_SKIPPED} times in a row"
                    )
        if not self.weights.isfinite().all():
            self._give_up(iteration, "a weight")
        skipped, history = num_steps - len(history), history or [metrics]
        means = dict(
            zip(history[0], _means([[*metrics.values()] for metrics in history]), strict=True)
        )
        explained = losses.explained_variance(
            batch["values"], batch["returns"], self.ranks.variance
        ).item()
        rates = {"learning_rate": self.learning_rate, "clip_coef": self.coefficients[0]}
        if adapts:  # as in Schulman et al. 2017, section 4, but for the learning rate, and by where the passes ended
            goal, kl = config.target_kl or ADAPTIVE_KL, float(metrics["approx_kl"])
            factor = 1 / 1.5 if kl > KL_TOLERANCE * goal else 1.5 if kl < goal / 2 else 1.0
            self.learning_rate = float(np.clip(self.learning_rate * factor, *ADAPTIVE_RATES))
        counts = {"gradient_steps": num_steps - skipped, "skipped_steps": skipped}
        return {**means, "explained_variance": explained, **counts, **rates}

    @torch.no_grad()
    def detail(self, batch: Batch) -> dict[str, np.ndarray]:
        """Of a batch that was learned from, what histograms are made of: each (n,)."""
        parts = {
            name: batch[name]
            for name in ("observations", "actions", "advantages", "returns", "values")
        }
        rows = {
            name: tensor for name, tensor in batch.items() if name != "starts"
        }  # each from its own state
        tensors = {
            **parts,
            "ratios": (self._log_probs_and_values(rows)[0] - batch["log_probs"]).exp(),
        }
        if isinstance(log_std := getattr(self.model.policy_head, "log_std", None), Tensor):
            tensors["log_std"] = log_std
        sampled = {name: _some(tensor) for name, tensor in tensors.items()}
        return {name: values for name, values in sampled.items() if len(values)}

    def _give_up(self, iteration: int, what: str) -> NoReturn:
        fix = "go on from the state before it with a lower --learning_rate"
        raise NotFinite(f"in iteration {iteration} {what} was not finite: {fix}")

    def compute_gradients(self, minibatch: Batch) -> dict[str, Any]:
        """Write the gradient of a minibatch's loss; returns metrics, 0-dimensional tensors or numbers."""
        self.gradients.zero_()
        loss, metrics = self.loss(minibatch)
        loss.backward()
        return {"loss": loss.detach(), **metrics}

    def standardize(self, advantages: Tensor, moments: Any) -> Tensor:
        """As ppo.algorithm.losses.standardize."""
        return losses.standardize(advantages, moments)

    def close(self) -> None:
        """Release what learning has taken beside memory."""

    def _schedule(self, remaining: float) -> None:
        """Set what depends on how much of the run remains: what ratios and values are clipped to, and the weight of the
        entropy."""
        settings = (self.config.clip_coef, self.config.clip_value_coef, self.config.entropy_coef)
        self.remaining, self.coefficients = (
            remaining,
            Coefficients(*(scheduled(value, remaining) for value in settings)),
        )

    def loss(self, minibatch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The objective of a minibatch (Schulman et al. 2017, eq. 9), and metrics. Override to change it."""
        config = self.config
        clip, clip_value, entropy_coef = self.coefficients
        distribution, values = self.forward(minibatch)
        log_probs, old_log_probs = (
            distribution.log_prob(minibatch["actions"]),
            minibatch["log_probs"],
        )
        policy_loss = losses.clipped_surrogate(
            log_probs, old_log_probs, minibatch["advantages"], clip_coef=clip
        )
        value_loss = losses.value_loss(
            values, minibatch["values"], minibatch["returns"], clip_coef=clip_value
        )
        entropy = distribution.entropy().mean()
        total = policy_loss + config.value_coef * value_loss - entropy_coef * entropy
        terms = {
            "loss": total,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
        }
        metrics = {name: term.detach() for name, term in terms.items()}
        with torch.no_grad():
            metrics["approx_kl"] = losses.approximate_kl(log_probs, old_log_probs)
            metrics["clip_fraction"] = losses.clip_fraction(log_probs, old_log_probs, clip)
            if clip_value is not None:
                metrics["value_clip_fraction"] = (
                    ((values - minibatch["values"]).abs() > clip_value).float().mean()
                )
        return total, metrics

    def forward(self, batch: Batch) -> tuple[Any, Tensor]:
        """The distribution of a batch's actions, within what was allowed, and its values (B,): from features if there
        are some; with starts, of whole sequences, each from the state of its first row."""
        if "features" in batch:
            distribution, values = self.model.heads(batch["features"], batch["features"])
        elif "starts" in batch:
            first_states = batch["states"][: len(batch["states"]) // self.config.num_steps]
            distribution, values = self.model(batch["observations"], first_states, batch["starts"])
        else:
            distribution, values = self.model(
                *(batch[name] for name in ("observations", "states") if name in batch)
            )
        return distribution.masked(
            batch["action_masks"]
        ) if "action_masks" in batch else distribution, values

    def _log_probs_and_values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probabilities and values (B,), from features if workers have recorded them, in parts as large as
        minibatches are, to take no more memory than they do."""
        log_probs, values = [], []
        total = len(batch["actions"])
        size = self.config.batch_size or -(-total // self.config.num_minibatches)
        for first in range(0, total, size):
            part = {name: tensor[first : first + size] for name, tensor in batch.items()}
            part_log_probs, part_values = self.log_probs_and_values(part)
            log_probs.append(part_log_probs)
            values.append(part_values)
        return torch.cat(log_probs), torch.cat(values)

    def log_probs_and_values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        distribution, values = self.forward(batch)
        return distribution.log_prob(batch["actions"]), values

    def _clip_gradients(self) -> Any:
        """Scale gradients to the norm allowed (Pascanu et al. 2013, algorithm 1); returns their own norm."""
        norm = self.gradients.norm()
        if self.config.max_grad_norm > 0:
            self.gradients *= (self.config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        return norm

    def _predict_values(self, *met: np.ndarray) -> np.ndarray:
        """Values (B,) of observations (B, *observation), met with states (B, S)."""
        inputs = [self._tensor(table) for table in met if table.size]
        return self.predict_values(*inputs).cpu().numpy()

    def predict_values(self, observations: Tensor, states: Tensor | None = None) -> Tensor:
        """Return the values (B,) of observations (B, *observation), met with states (B, S)."""
        inputs = [observations] if states is None else [observations, states]
        values: Tensor = self.model(*inputs)[1]
        return values

    def _flat(self, table: np.ndarray) -> Tensor:
        """(T, N, ...) as (T * N, ...)."""
        return self._tensor(table).flatten(0, 1)

    def _tensor(self, array: np.ndarray) -> Tensor:
        narrowed = (
            array.astype(np.float32) if array.dtype == np.float64 else array
        )  # all that models compute in
        return torch.from_numpy(narrowed).to(self.weights.device)


def _means(table: list[list[Any]]) -> list[float]:
    """Of each column: of tensors on one device, with one wait for all of them, or of numbers."""
    if isinstance(table[0][0], Tensor):
        return torch.stack([torch.stack(row) for row in table]).mean(0).tolist()
    return np.mean(table, axis=0).tolist()


def _some(tensor: Tensor) -> np.ndarray:
    """A copy of up to MOST_VALUES finite numbers from all over a tensor."""
    flat = tensor.flatten()
    chosen = torch.linspace(
        0, len(flat) - 1, min(len(flat), MOST_VALUES), dtype=torch.float64
    ).long()
    values = flat[chosen.to(flat.device)].double().cpu().numpy()
    return values[np.isfinite(values)]
