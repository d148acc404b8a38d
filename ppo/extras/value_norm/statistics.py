"""Statistics of returns, in which the value head is scaled and the loss of values is computed."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ppo.algorithm.flat_weights import mask_of
from ppo.algorithm.rollout import Batch
from ppo.callbacks.base import Callback, Run
from ppo.components import Components
from ppo.envs.normalize import RunningMeanStd
from ppo.extras.value_norm.flags import ValueNormFlags
from ppo.extras.value_norm.head import MIN_STD, NormalizedHead
from ppo.models.errors import ModelMismatch
from ppo.parts import Part


def make_parts(parts: Components) -> dict[str, Part]:
    """Return the part that --value_norm asks for. Raises ModelMismatch if the model has not just
    one value head of this extra."""
    kind = ValueNormFlags.of(parts.config).value_norm
    if kind == "none":
        return {}
    heads = [part for part in parts.model.modules() if isinstance(part, NormalizedHead)]
    if len(heads) != 1:
        raise ModelMismatch(
            f"--value_norm={kind} scales one layer of values, --model={parts.config.model} has "
            f"{len(heads)}: make it by ppo.models.actor_critic.value_head(F, config), or leave "
            "the flag out"
        )
    return {"value_norm": ValueNorm(parts, heads[0])}


def make_callbacks(parts: Components) -> list[Callback]:
    """Return what logs the statistics, if there are any."""
    part = parts.extension_parts.get("value_norm")
    return [LogStatistics(part.head)] if isinstance(part, ValueNorm) else []


class ValueNorm(Part):
    """Update the statistics of a value head by the returns of each rollout, before it is learned
    from.

    In units of the deviation s, the loss of values is L_V / s^2, and what they may move by is s
    times --clip_value_coef: errors of normalised values, of targets that are normalised by the same
    mean. All state is in the head; where its weights stand still, its statistics do, too."""

    def __init__(self, parts: Components, head: NormalizedHead) -> None:
        self.learner = parts.learner
        self.head = head
        (name,) = (name for name, part in parts.model.named_modules() if part is head)
        self.of_head = mask_of(parts.model, [f"{name}."])

    @contextmanager
    def on_update(self, batch: Batch, iteration: int) -> Iterator[None]:
        held = self.learner.held
        if held is None or not held[self.of_head].all():
            self.update(batch)
        self.learner.value_scale = self.head.std.item()
        yield

    def update(self, batch: Batch) -> None:
        """Add a batch's returns to the statistics; change weights or old values as it takes."""
        head, learner = self.head, self.learner
        flags = ValueNormFlags.of(learner.config)
        rows = batch.get("present", slice(None))
        returns = RunningMeanStd(())
        samples = torch.as_tensor(batch["returns"][rows]).cpu().numpy()
        returns.update(samples, learner.peers.gather)
        mean, std = head.mean.clone(), head.std.clamp(min=MIN_STD)
        head.update(float(returns.mean), float(returns.variance), flags.value_norm_rate)
        # Weights that are still 0 hold nothing to preserve.
        if flags.value_norm == "popart" and head.weight.any():
            head.preserve_outputs(mean, std)
        else:  # the old values, too, are what the network says now
            outputs = (batch["values"] - mean.item()) / std.item()
            batch["values"] = head.mean.item() + head.std.item() * outputs


class LogStatistics(Callback):
    """Log mean and deviation of the returns."""

    def __init__(self, head: NormalizedHead) -> None:
        self.head = head

    def on_iteration(self, run: Run) -> None:
        run.log("value_norm/mean", self.head.mean.item())
        run.log("value_norm/std", self.head.std.item())
