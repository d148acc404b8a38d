"""Critic warm-up: iterations in which the critic learns, and the policy stands still."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ppo.algorithm.rollout import Batch
from ppo.components import Components
from ppo.errors import ConfigError
from ppo.parts import Part


class CriticWarmup(Part):
    """In the first iterations of a run, learn only what the policy does not depend on.

    A trained policy would be led astray by the advantages of a critic that knows nothing yet. The
    model's buffers, and statistics of observations that were loaded, stand still, too."""

    def __init__(self, parts: Components, num_iterations: int) -> None:
        self.learner = parts.learner
        self.normalize = parts.normalize_observation
        self.num_iterations = num_iterations
        self.of_policy: Tensor | None = None  # the policy's weights, a mask (P,) bool

    @contextmanager
    def on_update(self, batch: Batch, iteration: int) -> Iterator[None]:
        """Raises ConfigError at the first iteration if there is nothing to learn."""
        learner = self.learner
        if iteration == self.num_iterations + 1:
            # Adam corrects its moments for the number of steps (Kingma & Ba 2015, section 3). Those
            # of the policy are still zero: its first steps would be up to six times too long.
            groups = learner.optimizer.state_dict()["param_groups"]
            learner.optimizer.load_state_dict({"state": {}, "param_groups": groups})
        if iteration > self.num_iterations:
            yield
            return
        if self.of_policy is None:
            self.of_policy = self._find_policy(batch)
        held, learning_rate = learner.held, learner.learning_rate
        learner.held = self.of_policy
        learner.trains_buffers = False
        self.normalize.is_held = self.normalize.statistics.count >= 1
        try:
            yield
        finally:
            learner.held = held
            learner.trains_buffers = True
            self.normalize.is_held = False
            if learner.is_adaptive:  # to a KL that is zero
                learner.learning_rate = learning_rate

    def _find_policy(self, batch: Batch) -> Tensor:
        """Return a mask (P,) of the weights that the policy depends on, and of the frozen ones."""
        names = [name for name in ("observations", "states") if name in batch]
        distribution, _ = self.learner.model(*(torch.as_tensor(batch[name][:1]) for name in names))
        outputs = distribution.log_prob(distribution.mode()) + distribution.entropy()
        parameters = [*self.learner.model.parameters()]
        learned = [parameter for parameter in parameters if parameter.requires_grad]
        gradients = torch.autograd.grad(outputs.sum(), learned, allow_unused=True)
        of_critic = {
            id(parameter)
            for parameter, gradient in zip(learned, gradients, strict=True)
            if gradient is None
        }
        found = torch.cat([torch.full((x.numel(),), id(x) not in of_critic) for x in parameters])
        if self.learner.held is not None:
            found |= self.learner.held
        if found.all():
            raise ConfigError(
                "--critic_warmup: all weights that may change are also the policy's: leave it out, "
                "or give the values weights of their own"
            )
        return found
