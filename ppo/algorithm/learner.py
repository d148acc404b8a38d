"""Learning from one rollout: advantages, then epochs of minibatch steps on the PPO objective."""

import math
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ppo.algorithm import losses
from ppo.algorithm.batch import split_into_minibatches
from ppo.algorithm.gae import generalized_advantages
from ppo.algorithm.parameters import flatten_parameters, frozen_weights, make_optimizer
from ppo.algorithm.rollout import Batch, Metrics, Rollout
from ppo.config.config import Config
from ppo.config.schedule import scheduled
from ppo.errors import ConfigError, NotFinite
from ppo.models.actor_critic import named_tensors, persistent_buffers
from ppo.system.distributed import SINGLE_PROCESS, ProcessGroup
from ppo.system.process import flush_denormals
from ppo.system.state_dict import State, add_prefix, select_prefix

KL_TOLERANCE = 1.5
ADAPTIVE_KL = 0.01  # aimed at by an adaptive learning rate if there is no target_kl
ADAPTIVE_FACTOR = 1.5
ADAPTIVE_RATES = (1e-5, 1e-2)
MOST_SKIPPED = 3  # gradient steps in a row
NOT_FINITE = (
    f"in iteration {{}} weights, or {MOST_SKIPPED} gradients in a row, were not finite: "
    "resume from the state before it with a lower --learning_rate"
)


class Learner:
    """Own a model's weights, gradients and optimizer, and improve the model rollout by rollout.

    weights, gradients: the model's, as two vectors (P,). Override loss() for another objective,
    advantages() for another estimator, and state_dict() and load_state_dict() to keep more state.
    """

    ranks: ProcessGroup = SINGLE_PROCESS  # the processes that learn the same policy
    standardize: Any = staticmethod(losses.standardize)
    has_modes = True  # whether the model may behave differently in training mode
    num_skipped = 0  # gradient steps in a row

    def __init__(self, model, config: Config) -> None:
        _check_model(model, config)
        self.model = model.eval()  # but for gradient steps
        self.config = config
        if config.compile:
            self.loss = torch.compile(self.loss)  # type: ignore[method-assign]
        self.weights, self.gradients = flatten_parameters(model)
        self.frozen = frozen_weights(model, config.freeze)
        self.learning_rate: float = scheduled(config.learning_rate, 1.0)
        self.optimizer = make_optimizer(config, self.weights, self.gradients, self.learning_rate)
        self._set_coefficients(1.0)

    def advantages(
        self, rollout: Rollout, rewards: ndarray, values: ndarray, next_values: ndarray
    ) -> ndarray:
        """Estimate the advantage of each transition. All arguments and the result: (T, N).

        rewards are normalised; next_values are those of the observations that actions led to, the
        true last ones where an episode was truncated. Override to change the estimator.
        """
        return generalized_advantages(
            rewards,
            values,
            next_values,
            terminations=rollout.terminations,
            truncations=rollout.truncations,
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
        )

    @flush_denormals()
    def update(self, batch: Batch, iteration: int) -> Metrics:
        """Run an iteration's epochs of gradient steps; return metrics averaged over the steps.

        iteration counts from 1. Steps whose loss or gradient is not finite are skipped. Raises
        NotFinite after several of those in a row, or if a weight is not finite.
        """
        self._set_coefficients(1 - (iteration - 1) / self.config.iterations)
        batch, parts, all_moments = split_into_minibatches(self, batch, iteration)
        target_kl = self.config.target_kl
        history: list[Metrics] = []
        num_skipped = 0
        if self.has_modes:
            self.model.train()
        for part, moments in zip(parts, all_moments, strict=True):
            minibatch = self._take(batch, part.rows)
            if self.config.normalize_advantages == "minibatch":
                minibatch["advantages"] = self.standardize(minibatch["advantages"], moments)
            metrics = self.ranks.all_reduce_gradients(
                self.gradients, self.compute_gradients(minibatch), part.weight
            )
            kl = metrics.get("approx_kl", 0.0)
            if history and target_kl is not None and kl > KL_TOLERANCE * target_kl:
                break
            if self.frozen is not None:
                self.gradients[self.frozen] = 0
                kept = self.weights[self.frozen]
            metrics["grad_norm"] = self._clip_gradients()
            if math.isfinite(metrics["loss"] + metrics["grad_norm"]):
                self.optimizer.step()
                if self.frozen is not None:  # weight decay and momentum move weights, too
                    self.weights[self.frozen] = kept
                self.num_skipped = 0
                history.append(metrics)
            else:
                num_skipped += 1
                self.num_skipped += 1
                if self.num_skipped == MOST_SKIPPED:
                    break
        if self.has_modes:
            self.model.eval()
        if self.num_skipped == MOST_SKIPPED or not self.weights.isfinite().all():
            raise NotFinite(NOT_FINITE.format(iteration))
        learning_rate = self.learning_rate
        if self.is_adaptive:
            self.learning_rate = _adapt(learning_rate, float(kl), target_kl or ADAPTIVE_KL)
        return {
            **_means(history or [metrics]),
            "explained_variance": losses.explained_variance(
                batch["values"], batch["returns"], self.ranks.variance
            ).item(),
            "gradient_steps": len(history),
            "skipped_steps": num_skipped,
            "learning_rate": learning_rate,
            "clip_coef": self.clip_coef,
        }

    def compute_gradients(self, minibatch: Batch) -> Metrics:
        """Write the gradient of a minibatch's loss; return metrics: scalar tensors, or numbers."""
        self.gradients.zero_()
        loss, metrics = self.loss(minibatch)
        torch.autograd.backward(loss)
        return {"loss": loss.detach(), **metrics}

    def loss(self, minibatch: Batch) -> tuple[Tensor, Metrics]:
        """Compute the loss of a minibatch (Schulman et al. 2017, eq. 9), and scalar metrics."""
        distribution, values = self.forward(minibatch)
        log_probs = distribution.log_prob(minibatch["actions"])
        old_log_probs = minibatch["log_probs"]
        policy_loss = losses.clipped_surrogate(
            log_probs, old_log_probs, minibatch["advantages"], clip_coef=self.clip_coef
        )
        value_loss = losses.value_loss(
            values, minibatch["values"], minibatch["returns"], clip_coef=self.clip_value_coef
        )
        entropy = distribution.entropy().mean()
        loss = policy_loss + self.config.value_coef * value_loss - self.entropy_coef * entropy
        with torch.no_grad():
            metrics = {
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "approx_kl": losses.approximate_kl(log_probs, old_log_probs),
                "clip_fraction": losses.clip_fraction(log_probs, old_log_probs, self.clip_coef),
            }
            if self.clip_value_coef is not None:
                moves = (values - minibatch["values"]).abs()
                metrics["value_clip_fraction"] = (moves > self.clip_value_coef).float().mean()
        return loss, metrics

    def forward(self, batch: Batch) -> tuple[Any, Tensor]:
        """Return the distribution of a batch's actions, within its masks, and its values (B,).

        With "starts", it is whole sequences, of which only the first rows' states are used."""
        if "features" in batch:
            distribution, values = self.model.heads(batch["features"], batch["features"])
        elif "starts" in batch:
            first_states = batch["states"][: len(batch["states"]) // self.config.num_steps]
            distribution, values = self.model(batch["observations"], first_states, batch["starts"])
        else:
            inputs = [batch[name] for name in ("observations", "states") if name in batch]
            distribution, values = self.model(*inputs)
        if "action_masks" in batch:
            distribution = distribution.masked(batch["action_masks"])
        return distribution, values

    def log_probs_and_values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities of a batch's actions, and its values: (B,) each."""
        distribution, values = self.forward(batch)
        return distribution.log_prob(batch["actions"]), values

    def predict_values(self, *inputs: Tensor):
        """Return the values (B,) of observations (B, *observation) and, if any, states (B, S)."""
        return self.model(*inputs)[1]

    def state_dict(self) -> State:
        """Return the state of learning: tensors and JSON values, by name."""
        return {
            **add_prefix("model", named_tensors(self.model)),
            **add_prefix("optimizer", self.optimizer.state_dict()["state"].get(0, {})),
            "learning_rate": self.learning_rate,
            "num_skipped": self.num_skipped,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore what state_dict() returned; other names are ignored."""
        with torch.no_grad():
            for name, tensor in named_tensors(self.model).items():
                tensor.copy_(state[f"model.{name}"])
        if moments := select_prefix("optimizer", state):
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": {0: moments}, "param_groups": groups})
        self.learning_rate = float(state["learning_rate"])
        self.num_skipped = int(state["num_skipped"])

    def _take(self, batch: Batch, rows: Tensor):
        """Return some rows of a batch, as compute_gradients takes it."""
        rows = rows.to(self.weights.device)
        return {name: tensor.index_select(0, rows) for name, tensor in batch.items()}

    def _set_coefficients(self, remaining: float) -> None:
        """Set scheduled coefficients. remaining: share of the run, from 1 down to 0."""
        config = self.config
        self.clip_coef = scheduled(config.clip_coef, remaining)
        self.clip_value_coef = scheduled(config.clip_value_coef, remaining)
        self.entropy_coef = scheduled(config.entropy_coef, remaining)
        self.is_adaptive = str(config.learning_rate).startswith("adaptive:")
        if not self.is_adaptive:
            self.learning_rate = scheduled(config.learning_rate, remaining)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate

    def _clip_gradients(self):
        """Clip the gradient by its norm (Pascanu et al. 2013, alg. 1); return the old norm."""
        norm = self.gradients.norm()
        if self.config.max_grad_norm > 0:
            self.gradients *= (self.config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        return norm


def _check_model(model, config: Config) -> None:
    """Raise ConfigError if a model cannot be learned with these settings."""
    is_split = config.num_minibatches > config.num_envs and not config.batch_size
    if model.state_size and is_split:
        raise ConfigError(
            f"--num_minibatches={config.num_minibatches} splits sequences: give at most "
            f"--num_envs={config.num_envs} for a recurrent model"
        )
    if config.overlap and persistent_buffers(model):
        raise ConfigError("--overlap=True: leave it out for a model with buffers")


def _adapt(learning_rate: float, kl: float, goal: float) -> float:
    """Steer the KL of an update towards a goal by the learning rate of the next one (Schulman et
    al. 2017, section 4, where it is the KL's own coefficient that is adapted)."""
    if kl > KL_TOLERANCE * goal:
        learning_rate *= 1 / ADAPTIVE_FACTOR
    elif kl < goal / 2:
        learning_rate *= ADAPTIVE_FACTOR
    return float(np.clip(learning_rate, *ADAPTIVE_RATES))


def _means(history: list[Metrics]) -> Metrics:
    """Average metrics over steps, with a single synchronisation if they are on a GPU."""
    table = [list(metrics.values()) for metrics in history]
    first = table[0][0]
    if isinstance(first, Tensor):
        tensors = [[torch.as_tensor(x, device=first.device) for x in row] for row in table]
        means = torch.stack([torch.stack(row) for row in tensors]).mean(0).tolist()
    else:
        means = np.mean(table, axis=0).tolist()
    return dict(zip(history[0], means, strict=True))
