"""PPO: make a batch of a rollout, then take gradient steps on its minibatches."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ppo import losses
from ppo.callbacks import Callback, overriding
from ppo.checkpoint import select
from ppo.config import Config, as_json, scheduled
from ppo.envs.make import Spaces
from ppo.envs.normalize import NormalizeObservation
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import CheckpointError, ConfigError, Stopped, TrainingError
from ppo.gae import generalized_advantages
from ppo.minibatches import draw_minibatches
from ppo.models.actor_critic import ActorCritic, as_tensor, named_tensors
from ppo.optimizer import Adam, flatten_parameters
from ppo.process import flush_denormals
from ppo.rollout import Batch, Metrics, Rollout

RECORDED = ("actions", "states", "action_masks", "features")  # by workers
KL_TOLERANCE = 1.5
ADAPTIVE_KL = 0.01  # aimed at by an adaptive learning rate if there is no target_kl
ADAPTIVE_FACTOR = 1.5
ADAPTIVE_RATES = (1e-5, 1e-2)


class Learner:
    """Own a model's weights (P,), gradients (P,) and optimizer, and improve it with each rollout.

    Override loss() for another objective, advantages() for another estimator, or gradient() and
    evaluate() for another way of computing them. Parameters whose requires_grad is False never
    change, whatever the optimizer. Callbacks may add terms to the loss."""

    coefficients: Any  # a Config whose schedules are the numbers of the iteration

    def __init__(
        self, model: ActorCritic, spaces: Spaces, callbacks: Sequence[Callback] = ()
    ) -> None:
        config = spaces.config
        if model.state_size and config.num_minibatches > config.num_envs and not config.batch_size:
            given = f"--num_minibatches={config.num_minibatches} would split sequences"
            raise ConfigError(f"{given}: use at most --num_envs={config.num_envs}")
        self.model: Any = model.eval()  # except in update
        self.config = config
        self.layout = spaces.layout
        self.loss_terms = overriding(callbacks, "loss")
        self.parameter = flatten_parameters(model)
        self.weights = self.parameter.data
        self.gradients: Any = self.parameter.grad
        self.learning_rate = float(scheduled(config.learning_rate, 1.0))
        self.optimizer = self.make_optimizer()
        self.set_coefficients(remaining=1.0)

    def make_optimizer(self) -> Any:
        """Return what steps self.parameter, all weights (P,), by its gradient. Override it for
        another optimizer, such as torch.optim.SGD([self.parameter], self.learning_rate)."""
        return Adam(self.parameter, self.learning_rate)

    @torch.no_grad()
    def make_batch(
        self, rollout: Rollout, normalize: NormalizeObservation, rewards: ndarray
    ) -> Batch:
        """Turn a rollout into a training batch (T * N, ...), evaluated under the present weights.
        rewards (T, N): the rollout's, normalized."""
        observed = normalize.tables({x: rollout.tables[x] for x in self.layout.tables})
        recorded = {x: rollout.tables[x] for x in RECORDED if rollout.tables[x].size}
        tables = {**observed, **recorded}
        batch = {}
        for name, table in tables.items():
            batch[name] = self.table(table[: len(rewards)]).flatten(0, 1)
        log_probs, values = self._evaluate_in_chunks(batch)
        batch.pop("features", None)  # gradient steps change the weights that made them
        values = values.reshape(rewards.shape)
        last_rows = {x: table[-1] for x, table in observed.items()}
        last_rows["states"] = rollout.states[-1]
        next_values = np.concatenate([values[1:], self._values_of(last_rows)[None]])
        truncated = rollout.report.truncated
        if truncated:  # the next row begins another episode (Pardo et al. 2018)
            rows = {x: np.stack([last.rows[x] for last in truncated]) for x in last_rows}
            places = [x.step for x in truncated], [x.environment for x in truncated]
            next_values[places] = self._values_of(normalize.tables(rows))
        advantages = self.advantages(rollout, rewards, values, next_values)
        advantages = np.asarray(advantages, np.float32)
        found = {
            "log_probs": log_probs,
            "values": values,
            "advantages": advantages,
            "returns": advantages + values,
        }
        if rollout.acting is not None:
            found["present"] = rollout.present
        if "states" in batch:  # where a recurrent network's sequences begin an episode
            ended = rollout.dones | ~rollout.present
            found["starts"] = np.concatenate([np.zeros_like(ended[:1]), ended[:-1]])
        return batch | {name: self.table(x.reshape(-1)) for name, x in found.items()}

    def advantages(
        self, rollout: Rollout, rewards: ndarray, values: ndarray, next_values: ndarray
    ) -> ndarray:
        """Estimate the advantage of each transition. All arguments and the result: (T, N).
        next_values: of what actions led to, the true last observation of a truncated episode."""
        return generalized_advantages(
            rewards,
            values,
            next_values,
            terminations=rollout.terminations,
            truncations=rollout.truncations,
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
        )

    def update(
        self, batch: Batch, iteration: int, should_stop: Callable[[], bool] = bool
    ) -> Metrics:
        """Run an iteration's epochs of gradient steps; return their mean metrics. Steps whose loss
        or gradient is not finite are skipped, and the rest once the policy has moved more than
        --target_kl. Raises TrainingError if none is finite or a weight is not; Stopped."""
        self.set_coefficients(remaining=1 - (iteration - 1) / self.config.iterations)
        target_kl = self.config.target_kl
        held = self._held()
        history: list[Metrics] = []
        metrics: Metrics = {}
        last_kl: Any = 0.0
        num_skipped = 0
        self.model.train()
        with flush_denormals():
            for minibatch in self._minibatches(batch, iteration):
                if should_stop():
                    raise Stopped
                metrics = self.gradient(minibatch)
                last_kl = metrics.get("approx_kl", 0.0)
                if history and target_kl is not None and last_kl > KL_TOLERANCE * target_kl:
                    break
                if held is not None:
                    self.gradients[held] = 0
                    kept = self.weights[held]
                metrics["grad_norm"] = self.clip_gradient()
                if math.isfinite(metrics["loss"] + metrics["grad_norm"]):
                    self.optimizer.step()
                    if held is not None:  # momentum and weight decay move them
                        self.weights[held] = kept
                    history.append(metrics)
                else:
                    num_skipped += 1
        self.model.eval()
        is_stuck = num_skipped and not history
        if is_stuck or not self.weights.isfinite().all():
            raise TrainingError(
                f"iteration {iteration} made non-finite weights, or only non-finite gradients: "
                "resume from the state before it with a lower --learning_rate"
            )
        now = self.coefficients
        if self._is_adaptive:
            goal = target_kl or ADAPTIVE_KL
            self.learning_rate = adapted(self.learning_rate, float(last_kl), goal)
        rows = batch.get("present", slice(None))
        explained = losses.explained_variance(batch["values"][rows], batch["returns"][rows])
        return {
            **_means(history or [metrics]),
            "explained_variance": explained.item(),
            "gradient_steps": len(history),
            "skipped_steps": num_skipped,
            "learning_rate": now.learning_rate,
            "clip_coef": now.clip_coef,
        }

    def loss(self, minibatch: Batch, distribution: Any, values: Tensor) -> tuple[Tensor, Metrics]:
        """Compute the loss of a minibatch (Schulman et al. 2017, eq. 9), and scalar metrics.
        distribution, values (B,): the network's present outputs."""
        now = self.coefficients
        log_probs = distribution.log_prob(minibatch["actions"])
        old_log_probs = minibatch["log_probs"]
        policy_loss = losses.clipped_surrogate(
            log_probs, old_log_probs, minibatch["advantages"], clip_coef=now.clip_coef
        )
        value_loss = losses.value_loss(
            values, minibatch["values"], minibatch["returns"], clip_coef=now.clip_value_coef
        )
        entropy = distribution.entropy().mean()
        loss = policy_loss + now.value_coef * value_loss - now.entropy_coef * entropy
        with torch.no_grad():
            metrics = {
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "approx_kl": losses.approximate_kl(log_probs, old_log_probs),
                "clip_fraction": losses.clip_fraction(log_probs, old_log_probs, now.clip_coef),
            }
            if now.clip_value_coef is not None:
                moves = (values - minibatch["values"]).abs()
                metrics["value_clip_fraction"] = (moves > now.clip_value_coef).float().mean()
        return loss, metrics

    def gradient(self, minibatch: Batch) -> Metrics:
        """Overwrite self.gradients by the gradient of loss and callbacks' terms; return metrics."""
        self.gradients.zero_()
        distribution, values = self.forward(minibatch)
        loss, metrics = self.loss(minibatch, distribution, values)
        for term in self.loss_terms:
            more, measured = term.loss(self, minibatch, distribution, values)
            loss = loss + more
            metrics = {**metrics, **measured}
        torch.autograd.backward(loss)
        return {"loss": loss.detach(), **metrics}

    def evaluate(self, batch: Batch) -> tuple[Any, Any]:
        """Return log-probabilities (B,) of a batch's actions, if it has any, and values (B,)."""
        distribution, values = self.forward(batch)
        log_probs = distribution.log_prob(batch["actions"]) if "actions" in batch else None
        return log_probs, values

    def forward(self, batch: Batch) -> tuple[Any, Tensor]:
        """Return the distribution of actions within masks, and values (B,). A batch has features of
        a shared trunk, or sequences ("starts"), or steps, each with its own state if any."""
        if "features" in batch:
            distribution, values = self.model.heads(batch["features"], batch["features"])
        elif "starts" in batch:
            num_sequences = len(batch["states"]) // self.config.num_steps
            states = batch["states"][:num_sequences]  # rows are time-major
            rows = [batch["present"]] if "present" in batch else []
            inputs = (self.layout.named(batch), states, batch["starts"], *rows)
            distribution, values = self.model(*inputs)
        else:
            states = [batch["states"]] if "states" in batch else []
            distribution, values = self.model(self.layout.named(batch), *states)
        if "action_masks" in batch:
            distribution = distribution.masked(batch["action_masks"])
        return distribution, values

    def gather(self, batch: Batch, rows: ndarray) -> Batch:
        """Return some rows (b,) of a batch's tables."""
        index = torch.from_numpy(rows).to(self.weights.device)
        return {name: x.index_select(0, index) for name, x in batch.items()}

    def standardize(self, advantages: Any) -> Any:
        """Scale advantages (B,) to mean 0 and standard deviation 1."""
        return losses.standardize(advantages)

    def clip_gradient(self) -> Any:
        """Clip the gradients to --max_grad_norm; return their norm (Pascanu et al. 2013)."""
        norm = self.gradients.norm()
        if self.config.max_grad_norm > 0:
            self.gradients *= (self.config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        return norm

    def set_coefficients(self, remaining: float) -> None:
        """Set scheduled coefficients for what remains of the run, 1 at its start."""
        config = self.config
        self._is_adaptive = str(config.learning_rate).startswith("adaptive:")
        if not self._is_adaptive:
            self.learning_rate = float(scheduled(config.learning_rate, remaining))
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        clip_coef = scheduled(config.clip_coef, remaining)
        value_clip = config.clip_value_coef
        self.coefficients = replace(
            config,
            learning_rate=self.learning_rate,
            clip_coef=clip_coef,
            clip_value_coef=clip_coef if value_clip == "auto" else scheduled(value_clip, remaining),
            entropy_coef=scheduled(config.entropy_coef, remaining),
        )

    def change(self, config: Config) -> None:
        """Take other settings from the next update on."""
        if config.learning_rate != self.config.learning_rate:
            self.learning_rate = float(scheduled(config.learning_rate, 1.0))
        self.config = config

    def table(self, array: ndarray) -> Tensor:
        """Return an array as a tensor on the learner's device, float64 as float32."""
        return as_tensor(array).to(self.weights.device)

    def state_dict(self) -> dict[str, Any]:
        moments = self.optimizer.state_dict()["state"].get(0, {})
        return {
            **{f"model.{name}": x.detach() for name, x in named_tensors(self.model).items()},
            **{f"optimizer.{name}": x for name, x in moments.items()},
            "learning_rate": self.learning_rate,
            "moments": sorted(moments),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises CheckpointError for tensors of other names or shapes, before anything is changed:
        torch's fused kernels would write past the end of a short one."""
        own = named_tensors(self.model)
        saved, moments = select("model", state), select("optimizer", state)
        shapes = {name: (*x.shape,) for name, x in own.items()}
        if {name: x.shape for name, x in saved.items()} != shapes:
            raise CheckpointError("its network's layers or sizes differ from this run's")
        optimizer = self.optimizer.state_dict()
        is_other = any(np.ndim(x) and np.size(x) != len(self.weights) for x in moments.values())
        needed = {*optimizer["state"].get(0, {}), *state["moments"]}
        if is_other or needed - moments.keys():
            raise CheckpointError("its optimizer state is missing, or belongs to another network")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(torch.from_numpy(saved[name]))
        if moments:
            moments = {x: torch.as_tensor(y) for x, y in moments.items()}
            self.optimizer.load_state_dict({**optimizer, "state": {0: moments}})
        if state["config"]["learning_rate"] == as_json(self.config.learning_rate):
            self.learning_rate = float(state["learning_rate"])

    def _evaluate_in_chunks(self, batch: Batch) -> list[ndarray]:
        """Evaluate a batch in chunks of a minibatch's size, so that memory suffices."""
        num_rows = len(batch["actions"])
        size = self.config.batch_size or -(-num_rows // self.config.num_minibatches)
        chunks = []
        for first in range(0, num_rows, size):
            chunk = {name: x[first : first + size] for name, x in batch.items()}
            chunks.append(self.evaluate(chunk))
        return [torch.cat(x).cpu().numpy() for x in zip(*chunks, strict=True)]

    def _values_of(self, tables: dict[str, ndarray]) -> ndarray:
        rows = {name: self.table(x) for name, x in tables.items() if x.size}
        return self.evaluate(rows)[1].cpu().numpy()

    def _minibatches(self, batch: Batch, iteration: int) -> Iterator[Batch]:
        config = self.config
        drawn = draw_minibatches(
            config,
            len(batch["advantages"]),
            seed=integer_seed(config.seed, Stream.SHUFFLE, iteration),
            sequence_length=config.num_steps if "states" in batch else 1,
            present=batch["present"].numpy(force=True) if "present" in batch else None,
        )
        if config.normalize_advantages == "rollout":
            rows = batch.get("present", slice(None))
            advantages = batch["advantages"].clone()
            advantages[rows] = torch.as_tensor(self.standardize(advantages[rows]))
            batch = {**batch, "advantages": advantages}
        for rows in drawn:
            minibatch = self.gather(batch, rows)
            if "present" in batch and "states" in batch:  # networks read whole sequences
                whole = {*self.layout.tables, "states", "starts", "present"}
                here = minibatch["present"]
                minibatch |= {x: minibatch[x][here] for x in minibatch.keys() - whole}
            if config.normalize_advantages == "minibatch":
                minibatch["advantages"] = self.standardize(minibatch["advantages"])
            yield minibatch

    def _held(self) -> Tensor | None:
        """Return a mask (P,) of the weights that stand still, None if there are none."""
        flags = [torch.full((x.numel(),), not x.requires_grad) for x in self.model.parameters()]
        held = torch.cat(flags).to(self.weights.device)
        return held if held.any() else None


def adapted(learning_rate: float, kl: float, goal: float) -> float:
    """Scale the learning rate to keep the KL near its goal (after Schulman et al. 2017, section 4,
    which scales a coefficient of the KL instead)."""
    if kl > KL_TOLERANCE * goal:
        learning_rate *= 1 / ADAPTIVE_FACTOR
    elif kl < goal / 2:
        learning_rate *= ADAPTIVE_FACTOR
    return float(np.clip(learning_rate, *ADAPTIVE_RATES))


def _means(history: list[Metrics]) -> Metrics:
    is_torch = isinstance(history[0].get("loss"), Tensor)
    dtype = torch.float32 if is_torch else torch.float64  # numpy's learner returns Python's floats
    table = [[float(x) for x in metrics.values()] for metrics in history]
    means = torch.tensor(table, dtype=dtype).mean(0)
    return dict(zip(history[0], means.tolist(), strict=True))
