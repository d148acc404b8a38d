"""PPO: make a batch of a rollout, then take gradient steps on its minibatches."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ppo.algorithm import losses
from ppo.algorithm.backend import Backend, TorchBackend
from ppo.algorithm.flat_weights import flatten_parameters, make_optimizer
from ppo.algorithm.gae import generalized_advantages
from ppo.algorithm.minibatches import draw_minibatches
from ppo.algorithm.rollout import Batch, Metrics, Rollout
from ppo.config.config import Config
from ppo.config.schedule import scheduled
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import ConfigError, NonFinite
from ppo.extensions import functions_of
from ppo.models.actor_critic import ActorCritic, named_tensors
from ppo.peers import Peers
from ppo.system.process import flush_denormals
from ppo.system.state_dict import State, add_prefix, select_prefix

RECORDED = ("observations", "actions", "states", "action_masks", "features")  # by workers
SEQUENCES = ("observations", "states", "starts")  # read as whole sequences by recurrent networks
KL_TOLERANCE = 1.5
ADAPTIVE_KL = 0.01  # aimed at by an adaptive learning rate if there is no target_kl
ADAPTIVE_FACTOR = 1.5
ADAPTIVE_RATES = (1e-5, 1e-2)
MAX_SKIPPED = 3  # gradient steps in a row
NOT_FINITE = (
    f"in iteration {{}} weights, or {MAX_SKIPPED} gradients in a row, were not finite: "
    "resume from the state before it with a lower --learning_rate"
)
# From the learner, a minibatch, its distribution and values (B,) to what is added to the loss, and
# metrics.
LossTerm = Callable[["Learner", Batch, Any, Tensor], tuple[Tensor, Metrics]]


class Learner:
    """Own a model's weights, gradients and optimizer, and improve the model rollout by rollout.

    weights, gradients: the model's, as two vectors (P,). peers: the processes that learn the same
    policy. Override loss() for another objective, advantages() for another estimator, and
    state_dict() and load_state_dict() to keep more state.

    What extensions may set: terms, which are added to the loss; replaces_policy_loss, whether they
    take the place of all of it but the loss of values; value_scale, the unit of errors of values
    from the next update on: the loss of values is divided by its square, and clip_value_coef is in
    it; held, a mask (P,) of weights that stand still, None for none; backend, what computes all
    this.
    """

    def __init__(self, model: ActorCritic, config: Config, peers: Peers | None = None) -> None:
        _check_model(model, config)
        self.model: Any = model.eval()  # but for gradient steps; a user's has parts of its own
        self.config = config
        self.peers = peers or Peers()
        self.weights, self.gradients = flatten_parameters(model)
        self.held: Tensor | None = None
        self.terms: list[LossTerm] = []
        self.replaces_policy_loss = False
        self.value_scale = 1.0
        self.trains_buffers = True  # whether buffers such as BatchNorm's are updated
        self.remaining = 1.0  # share of the run that is left at this update
        self.learning_rate: float = scheduled(config.learning_rate, 1.0)
        self.num_skipped = 0  # gradient steps in a row, also over iterations
        self.optimizer = make_optimizer(config, self.weights, self.gradients, self.learning_rate)
        self.backend: Backend = TorchBackend(self)
        self.set_coefficients()

    def choose_backend(self) -> None:
        """Compute by an extension's backend, if one takes this learner as it is now."""
        made = (make(self) for make in functions_of("backend"))
        self.backend = next(filter(None, made), self.backend)

    def to_device(self, table: ndarray) -> Any:
        """Return a table in the form that this learner computes with: a tensor on its device, or an
        array."""
        return self.backend.table(table)

    @torch.no_grad()
    def make_batch(
        self, rollout: Rollout, normalize: Callable[[ndarray], ndarray], rewards: ndarray
    ) -> Batch:
        """Turn a rollout into a training batch (T * N, ...), evaluated under the present weights.

        normalize: applied to observations. rewards (T, N): the rollout's, normalised.
        """
        observations = normalize(rollout.observations)
        tables = {**vars(rollout), "observations": observations}
        recorded = {name: tables[name][: len(rewards)] for name in RECORDED if tables[name].size}
        batch = {name: self.to_device(_flatten(table)) for name, table in recorded.items()}
        log_probs, values = self.evaluate_actions(batch)  # row by row, with recorded states
        batch.pop("features", None)  # gradient steps change the weights that made them
        values = values.reshape(rewards.shape)
        next_values = self._next_values(rollout, observations[-1], values, normalize)
        advantages = self.advantages(rollout, rewards, values, next_values)
        advantages = np.asarray(advantages, np.float32)
        present = rollout.is_present
        if present is not None:
            advantages = np.where(present, advantages, np.float32(0))
            batch["present"] = self.to_device(present.reshape(-1))
        found = {
            "log_probs": log_probs,
            "values": values,
            "advantages": advantages,
            "returns": advantages + values,
        }
        if "states" in batch:
            dones = rollout.dones
            found["starts"] = np.concatenate([np.zeros_like(dones[:1]), dones[:-1]])
        return batch | {name: self.to_device(table.reshape(-1)) for name, table in found.items()}

    def evaluate_actions(self, batch: Batch) -> tuple[ndarray, ndarray]:
        """Return the log-probabilities of a batch's actions, and its values: (B,) each.

        The batch is processed in chunks of the size of a minibatch, so that memory suffices.
        """
        num_rows = len(batch["actions"])
        size = self.config.batch_size or -(-num_rows // self.config.num_minibatches)
        chunks = [
            self.backend.log_probs_and_values(
                {name: x[first : first + size] for name, x in batch.items()}
            )
            for first in range(0, num_rows, size)
        ]
        log_probs, values = zip(*chunks, strict=True)
        return self.backend.join(log_probs), self.backend.join(values)

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

        iteration counts from 1. The backend computes the gradient of objective(). If the policy has
        moved further than --target_kl, as a minibatch shows that is not learned from any more, the
        rest of the steps is left out, of all epochs. Steps whose loss or gradient is not finite are
        skipped. Raises NonFinite after several of those in a row, or if a weight is not finite.
        """
        self.remaining = 1 - (iteration - 1) / self.config.iterations
        self.set_coefficients()
        target_kl = self.config.target_kl
        history: list[Metrics] = []
        skipped_here = 0
        has_modes = self.backend.has_modes and self.trains_buffers
        if has_modes:
            self.model.train()
        for minibatch in self._minibatches(batch, iteration):
            metrics = self.backend.compute_gradients(minibatch)  # into self.gradients
            metrics = self.peers.average(self.gradients, metrics)
            last_kl = metrics.get("approx_kl", 0.0)
            if history and target_kl is not None and last_kl > KL_TOLERANCE * target_kl:
                break
            if self.held is not None:
                self.gradients[self.held] = 0
            metrics["grad_norm"] = self.backend.clip_gradients()
            if math.isfinite(metrics["loss"] + metrics["grad_norm"]):
                self._step()
                history.append(metrics)
                self.num_skipped = 0
            else:
                skipped_here += 1
                self.num_skipped += 1
                if self.num_skipped == MAX_SKIPPED:
                    break
        if has_modes:
            self.model.eval()
        if self.num_skipped == MAX_SKIPPED or not self.weights.isfinite().all():
            raise NonFinite(NOT_FINITE.format(iteration))
        learning_rate = self.learning_rate
        if self.is_adaptive:
            self.learning_rate = _adapt(learning_rate, float(last_kl), target_kl or ADAPTIVE_KL)
        rows = batch.get("present", slice(None))
        values, returns = (torch.as_tensor(batch[name][rows]) for name in ("values", "returns"))
        return {
            **_means(history or [metrics]),
            "explained_variance": losses.explained_variance(values, returns).item(),
            "gradient_steps": len(history),
            "skipped_steps": skipped_here,
            "learning_rate": learning_rate,
            "clip_coef": self.clip_coef,
        }

    def loss(self, minibatch: Batch, distribution: Any, values: Tensor) -> tuple[Tensor, Metrics]:
        """Compute the loss of a minibatch (Schulman et al. 2017, eq. 9), and scalar metrics.

        distribution, values (B,): the network's present outputs. Override for another loss.
        """
        log_probs = distribution.log_prob(minibatch["actions"])
        old_log_probs = minibatch["log_probs"]
        policy_loss = losses.clipped_surrogate(
            log_probs, old_log_probs, minibatch["advantages"], clip_coef=self.clip_coef
        )
        value_loss = losses.value_loss(
            values, minibatch["values"], minibatch["returns"], clip_coef=self.clip_value_coef
        )
        entropy = distribution.entropy().mean()
        loss = policy_loss + self.value_coef * value_loss - self.entropy_coef * entropy
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

    def objective(self, minibatch: Batch) -> tuple[Tensor, Metrics]:
        """Return the loss of a minibatch with the terms of extensions, and metrics."""
        distribution, values = self.forward(minibatch)
        loss, metrics = self.loss(minibatch, distribution, values)
        if self.replaces_policy_loss:
            loss = self.value_coef * losses.value_loss(
                values, minibatch["values"], minibatch["returns"], clip_coef=self.clip_value_coef
            )
        for term in self.terms:
            more, measured = term(self, minibatch, distribution, values)
            loss = loss + more
            metrics = {**metrics, **measured}
        return loss, metrics

    def forward(self, batch: Batch) -> tuple[Any, Tensor]:
        """Return the distribution of a batch's actions, within its masks, and its values (B,).

        Its rows are read one by one, each with its own recurrent state if there are some; as whole
        sequences if they have "starts"; or as features, which a trunk has made of them before."""
        if "features" in batch:
            distribution, values = self.model.heads(batch["features"], batch["features"])
        elif "starts" in batch:
            distribution, values = self._forward_sequences(batch)
        else:
            inputs = [batch[name] for name in ("observations", "states") if name in batch]
            distribution, values = self.model(*inputs)
        if "action_masks" in batch:
            distribution = distribution.masked(batch["action_masks"])
        return distribution, values

    def _forward_sequences(self, batch: Batch) -> tuple[Any, Tensor]:
        """Return the same for a recurrent network, which reads sequences of T rows from the state
        of their first row on. If there are "rows", these are the ones to return."""
        first_states = batch["states"][: len(batch["states"]) // self.config.num_steps]
        inputs = [batch["observations"], first_states, batch["starts"]]
        inputs += [batch["rows"]] if "rows" in batch else []
        distribution, values = self.model(*inputs)
        return distribution, values

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

    def configure(self, config: Config) -> None:
        """Take other settings from the next update on; an adaptive learning rate begins anew if its
        setting has changed."""
        if config.learning_rate != self.config.learning_rate:
            self.learning_rate = scheduled(config.learning_rate, 1.0)
        self.config = config

    def _minibatches(self, batch: Batch, iteration: int) -> Iterator[Batch]:
        """Yield the minibatches of all epochs, with standardised advantages."""
        config = self.config
        advantages = batch["advantages"]
        present = None
        if "present" in batch:
            present = np.asarray(torch.as_tensor(batch["present"]).cpu())
            batch = {name: table for name, table in batch.items() if name != "present"}
        drawn = draw_minibatches(
            config,
            len(advantages),
            sequence_length=config.num_steps if "states" in batch else 1,
            seed=integer_seed(config.seed, Stream.SHUFFLE, iteration),
            present=present,
        )
        if present is not None:  # other processes may have fewer
            drawn = drawn[: min(self.peers.gather(len(drawn)))]
        if config.normalize_advantages == "rollout":
            rows = np.arange(len(advantages)) if present is None else np.flatnonzero(present)
            index = self.to_device(rows)
            standardized = advantages * 0  # stay 0 where no action was carried out
            standardized[index] = self.backend.standardize(advantages[index])
            batch = {**batch, "advantages": standardized}
        for indices in drawn:
            minibatch = self.backend.gather(batch, indices.rows)
            if indices.sequences is not None:
                assert present is not None
                sequences = {name: batch[name] for name in SEQUENCES}
                minibatch |= self.backend.gather(sequences, indices.sequences)
                minibatch["rows"] = self.to_device(present[indices.sequences])
            if config.normalize_advantages == "minibatch":
                minibatch["advantages"] = self.backend.standardize(minibatch["advantages"])
            yield minibatch

    def _next_values(
        self,
        rollout: Rollout,
        last_row: ndarray,
        values: ndarray,
        normalize: Callable[[ndarray], ndarray],
    ) -> ndarray:
        """Return the value (T, N) of what each action led to, from which its return goes on.

        That is the next row's value; that of row T (last_row, its normalised observations) after
        the last step; and that of the episode's own last observation where it was truncated (Pardo
        et al. 2018), as the next row begins another episode. It is not used after a termination."""
        after_last = self._values_of(last_row, rollout.states[-1])
        next_values = np.concatenate([values[1:], after_last[None]])
        if truncated := rollout.info.last_observations:
            steps, environments, last, states = zip(*truncated, strict=True)
            of_truncated = self._values_of(normalize(np.stack(last)), np.stack(states))
            next_values[steps, environments] = of_truncated
        return next_values

    def _values_of(self, observations: ndarray, states: ndarray) -> ndarray:
        """Predict the values (B,) of observations (B, *observation), met with states (B, S)."""
        inputs = [self.to_device(table) for table in (observations, states) if table.size]
        return self.backend.join([self.backend.values(*inputs)])

    def _step(self) -> None:
        """Step the optimizer. Held weights stay, which weight decay and momentum would move even
        without a gradient."""
        if self.held is None:
            self.optimizer.step()
            return
        kept = self.weights[self.held]
        self.optimizer.step()
        self.weights[self.held] = kept

    def set_coefficients(self) -> None:
        """Set scheduled coefficients for what remains of the run."""
        config, remaining = self.config, self.remaining
        self.clip_coef = scheduled(config.clip_coef, remaining)
        value_clip = config.clip_value_coef
        follows = value_clip == "auto"
        value_clip = self.clip_coef if follows else scheduled(value_clip, remaining)
        self.clip_value_coef = value_clip and value_clip * self.value_scale
        self.value_coef = config.value_coef / self.value_scale**2
        self.entropy_coef = scheduled(config.entropy_coef, remaining)
        self.is_adaptive = str(config.learning_rate).startswith("adaptive:")
        if not self.is_adaptive:
            self.learning_rate = scheduled(config.learning_rate, remaining)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate


def _check_model(model: ActorCritic, config: Config) -> None:
    """Raise ConfigError if a model cannot be learned with these settings."""
    is_split = config.num_minibatches > config.num_envs and not config.batch_size
    if model.state_size and is_split:
        raise ConfigError(
            f"--num_minibatches={config.num_minibatches} splits sequences: give at most "
            f"--num_envs={config.num_envs} for a recurrent model"
        )


def _adapt(learning_rate: float, kl: float, goal: float) -> float:
    """Scale the learning rate by 1.5 to keep the KL near its target (after Schulman et al. 2017,
    section 4, which adapts a coefficient of the KL instead)."""
    if kl > KL_TOLERANCE * goal:
        learning_rate *= 1 / ADAPTIVE_FACTOR
    elif kl < goal / 2:
        learning_rate *= ADAPTIVE_FACTOR
    return float(np.clip(learning_rate, *ADAPTIVE_RATES))


def _flatten(table: ndarray) -> ndarray:
    """Return a table (T, N, ...) as (T * N, ...)."""
    return table.reshape(-1, *table.shape[2:])


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
