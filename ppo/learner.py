"""Learning from one rollout: advantages, then epochs of minibatch steps on the PPO objective."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ppo import losses
from ppo.config import Config
from ppo.gae import generalized_advantages
from ppo.rollout import Batch, Rollout, minibatches

ADAM_EPSILON = 1e-5
KL_TOLERANCE = 1.5


class Learner:
    """Owns the optimiser, and moves the model's parameters and gradients into two vectors (P,), weights and gradients:
    to publish, to clip or to step is then one operation each."""

    def __init__(self, model: Any, config: Config) -> None:
        self.model, self.config = model, config
        self.weights = parameters_to_vector(model.parameters()).detach()
        self.gradients = torch.zeros_like(self.weights)
        vector_to_parameters(self.weights, model.parameters())
        sizes = [parameter.numel() for parameter in model.parameters()]
        for parameter, part in zip(model.parameters(), self.gradients.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        self.parameters = nn.Parameter(self.weights)
        self.parameters.grad = self.gradients
        fused = self.weights.device.type in ("cpu", "cuda")
        self.optimizer = torch.optim.Adam([self.parameters], config.learning_rate, eps=ADAM_EPSILON, fused=fused)

    @torch.no_grad()
    def make_batch(
        self, rollout: Rollout, observations: np.ndarray, rewards: np.ndarray, last_observations: Sequence[tuple]
    ) -> Batch:
        """What is learned from: the rollout's transitions with their values, advantages and returns.

        observations (T + 1, N, *observation), rewards (T, N): the rollout's, as the learner is to see them.
        last_observations: likewise, (step, environment, true last observation) of each truncated episode.
        All is evaluated under the present weights, which are those that acted.
        """
        transitions = self._tensor(observations[:-1]).flatten(0, 1)
        actions = self._tensor(rollout.actions).flatten(0, 1)
        log_probs, flat_values = self._evaluate(rollout, transitions, actions)
        values = flat_values.cpu().numpy().reshape(rewards.shape)
        next_values = np.concatenate([values[1:], self._values(observations[-1:])])
        if last_observations:
            steps, environments, lasts = zip(*last_observations, strict=True)
            next_values[steps, environments] = self._values(np.stack(lasts)[None])
        ends = (rollout.terminations, rollout.truncations)
        discounts = (self.config.gamma, self.config.gae_lambda)
        advantages = self._tensor(generalized_advantages(rewards, values, next_values, *ends, *discounts)).flatten()
        return {
            "observations": transitions,
            "actions": actions,
            "log_probs": log_probs,
            "values": flat_values,
            "advantages": advantages,
            "returns": advantages + flat_values,
        }

    def learn(self, batch: Batch, iteration: int, shuffle_seed: int) -> dict[str, float]:
        """Take an iteration's gradient steps; iteration counts from 1. Returns metrics, averaged over them."""
        config = self.config
        remaining = 1 - (iteration - 1) / config.iterations if config.anneal_lr else 1.0
        learning_rate = self.optimizer.param_groups[0]["lr"] = config.learning_rate * remaining
        if config.normalize_advantages == "rollout":
            batch = {**batch, "advantages": losses.standardize(batch["advantages"])}
        history: list[dict[str, Tensor]] = []
        for minibatch in minibatches(batch, config.num_epochs, config.num_minibatches, shuffle_seed):
            loss, metrics = self.loss(minibatch)
            if history and config.target_kl is not None and metrics["approx_kl"] > KL_TOLERANCE * config.target_kl:
                break
            self.gradients.zero_()
            loss.backward()
            history.append({**metrics, "grad_norm": self._clip_gradients()})
            self.optimizer.step()
        table = torch.stack([torch.stack(list(metrics.values())) for metrics in history])
        means = dict(zip(history[0], table.mean(0).tolist(), strict=True))  # one wait for all of them
        explained = losses.explained_variance(batch["values"], batch["returns"]).item()
        return {**means, "explained_variance": explained, "learning_rate": learning_rate}

    def loss(self, minibatch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The objective of a minibatch (Schulman et al. 2017, eq. 9), and metrics. Override to change it."""
        config = self.config
        distribution, values = self.model(minibatch["observations"])
        log_probs, old_log_probs = distribution.log_prob(minibatch["actions"]), minibatch["log_probs"]
        advantages = minibatch["advantages"]
        if config.normalize_advantages == "minibatch":
            advantages = losses.standardize(advantages)
        policy_loss = losses.clipped_surrogate(log_probs, old_log_probs, advantages, config.clip_coef)
        value_loss = losses.value_loss(values, minibatch["values"], minibatch["returns"], config.clip_value_coef)
        entropy = distribution.entropy().mean()
        total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
        metrics = {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach(), "entropy": entropy.detach()}
        with torch.no_grad():
            metrics["approx_kl"] = losses.approximate_kl(log_probs, old_log_probs)
            metrics["clip_fraction"] = losses.clip_fraction(log_probs, old_log_probs, config.clip_coef)
        return total, metrics

    def _evaluate(self, rollout: Rollout, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and values (B,), from features if workers have recorded them. It is done in as many parts
        as there are minibatches, to take no more memory than they do."""
        model, inputs = self.model, observations
        if rollout.features is not None:
            model, inputs = lambda part: self.model.heads(part, part), self._tensor(rollout.features).flatten(0, 1)
        log_probs, values = [], []
        num_parts = self.config.num_minibatches
        for part, acted in zip(inputs.tensor_split(num_parts), actions.tensor_split(num_parts), strict=True):
            distribution, part_values = model(part)
            log_probs.append(distribution.log_prob(acted))
            values.append(part_values)
        return torch.cat(log_probs), torch.cat(values)

    def _clip_gradients(self) -> Tensor:
        """Scale gradients to the norm allowed (Pascanu et al. 2013, algorithm 1); returns their own norm."""
        norm = self.gradients.norm()
        if self.config.max_grad_norm > 0:
            self.gradients *= (self.config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        return norm

    def _values(self, observations: np.ndarray) -> np.ndarray:
        """Values (A, B) of observations (A, B, *observation)."""
        return self.model(self._tensor(observations).flatten(0, 1))[1].cpu().numpy().reshape(observations.shape[:2])

    def _tensor(self, array: np.ndarray) -> Tensor:
        narrowed = array.astype(np.float32) if array.dtype == np.float64 else array  # all that models compute in
        return torch.from_numpy(narrowed).to(self.weights.device)
