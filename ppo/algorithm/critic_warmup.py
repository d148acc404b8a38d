"""Critic warm-up: iterations in which the critic learns, and the policy stands still."""

from typing import Any

import torch
from torch import Tensor

from ppo.algorithm.learner import Learner
from ppo.algorithm.rollout import Batch, Metrics
from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.system.distributed import SINGLE_PROCESS, ProcessGroup


class CriticWarmup(Learner):
    """In the first --critic_warmup iterations, learn only what the policy does not depend on.

    A trained policy would be led astray by the advantages of a critic that knows nothing yet.
    Models stay in eval mode meanwhile, so that the policy's buffers stand still, too. Raises
    ConfigError in the first update if there is nothing to learn then."""

    def __init__(
        self, model, config: Config, ranks: ProcessGroup = SINGLE_PROCESS, **options: Any
    ) -> None:
        super().__init__(model, config, ranks, **options)
        self.of_policy: Tensor | None = None  # the policy's weights, a mask (P,) bool

    def update(self, batch: Batch, iteration: int) -> Metrics:
        warmup = self.config.critic_warmup
        if iteration == warmup + 1:
            # Adam corrects its moments for the number of steps (Kingma & Ba 2015, section 3). Those
            # of the policy are still zero: its first steps would be up to six times too long.
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": {}, "param_groups": groups})
        if iteration > warmup:
            return super().update(batch, iteration)
        if self.of_policy is None:
            self.of_policy = self._find_policy(batch)
        frozen, trains, learning_rate = self.frozen, self.uses_train_mode, self.learning_rate
        self.frozen = self.of_policy
        self.uses_train_mode = False
        try:
            return super().update(batch, iteration)
        finally:
            self.frozen = frozen
            self.uses_train_mode = trains
            if self.is_adaptive:  # to a KL that is zero
                self.learning_rate = learning_rate

    def _find_policy(self, batch: Batch) -> Tensor:
        """Return a mask (P,) of the weights that the policy depends on, and of the frozen ones."""
        names = [name for name in ("observations", "states") if name in batch]
        distribution, _ = self.model(*(torch.as_tensor(batch[name][:1]) for name in names))
        outputs = distribution.log_prob(distribution.mode()) + distribution.entropy()
        parameters = [*self.model.parameters()]
        learned = [parameter for parameter in parameters if parameter.requires_grad]
        gradients = torch.autograd.grad(outputs.sum(), learned, allow_unused=True)
        of_critic = {
            id(parameter)
            for parameter, gradient in zip(learned, gradients, strict=True)
            if gradient is None
        }
        found = torch.cat([torch.full((x.numel(),), id(x) not in of_critic) for x in parameters])
        if self.frozen is not None:
            found |= self.frozen
        if found.all():
            raise ConfigError(
                "--critic_warmup: all weights that may change are also the policy's: leave it out, "
                "or give the values weights of their own"
            )
        return found
