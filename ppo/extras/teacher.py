"""Imitate another policy: --teacher and --teacher_coef."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppo.callbacks import Callback
from ppo.config import Linear, flag, scheduled
from ppo.errors import ConfigError
from ppo.extras.fine_tuning import check_fits, naming, probe
from ppo.models import MakeTorchActor
from ppo.models.distributions import Categorical, DiagonalGaussian
from ppo.models.numpy_mlp import EMPTY
from ppo.policy import load_policy
from ppo.rollout import Batch, Metrics
from ppo.run import Run

TABLE = "teacher"  # of the batch: parameters (T * N, W) of the teacher's distributions
EQUAL = ("image",)  # flags
NUM_ROWS = 1024  # of observations that it reads at once


@dataclass
class Teacher(Callback):
    """Add teacher_coef * E[KL(teacher || policy)] to the loss, over the states that the policy
    itself visits (Schmitt et al. 2018, "Kickstarting Deep RL"; Ross et al. 2011, DAgger).

    Raises ConfigError for a teacher that does not fit."""

    teacher: str | None = None
    """Run or policy file of a teacher to imitate, in the states that the new policy visits."""
    teacher_coef: float | Linear = flag("linear:1", 0, 1e9)
    """Coefficient of KL(teacher || policy) in the loss; linear:<number> decays to 0
    over the run."""

    def on_start(self, run: Run) -> None:
        if self.teacher is None:
            raise ConfigError("--teacher_coef needs --teacher: give both, or neither")
        with naming(f"--teacher={self.teacher}"):
            self.policy = load_policy(self.teacher)
            spaces = self.policy.spaces
            tables = spaces.layout.tables
            own = run.spaces.layout.tables
            check_fits(run, own, self.policy.state, tables, EQUAL)
            if self.policy.actor.state_size:
                raise ConfigError("it is recurrent: use a feed-forward teacher, such as mlp")
            make_actor = MakeTorchActor(spaces, run.config.device)
            self.actor = make_actor(self.policy.weights)
            distribution = probe(run)
            parameters(distribution)  # raises ConfigError if this policy cannot be taught

    def on_batch(self, run: Run, batch: Batch) -> None:
        tables = {}
        boxes = run.spaces.layout.tables
        for name, box in boxes.items():
            table = run.rollout.tables[name][:-1]
            tables[name] = table.reshape(-1, *box.shape)
        found = []
        size = len(batch["actions"])
        for first in range(0, size, NUM_ROWS):
            rows = slice(first, first + NUM_ROWS)
            some = {name: x[rows] for name, x in tables.items()}
            inputs = self.policy.observe(some)
            distribution, _ = self.actor.evaluate(inputs, EMPTY)
            if "action_masks" in batch:
                allowed = batch["action_masks"][rows]
                distribution = distribution.masked(allowed)
            found.append(parameters(distribution))
        batch[TABLE] = torch.cat(found)
        num_done = run.iteration - 1
        passed = num_done / run.config.iterations
        self.coefficient = scheduled(self.teacher_coef, 1 - passed)

    def loss(
        self,
        learner: Any,
        minibatch: Batch,
        distribution: Any,
        values: Tensor,
    ) -> tuple[Any, Metrics]:
        mean = divergence(minibatch[TABLE], distribution).mean()
        return self.coefficient * mean, {"teacher_kl": mean.detach()}


def parameters(distribution: Any) -> Tensor:
    """Return the numbers that a distribution is made of, (..., W): log-probabilities, or means and
    log standard deviations. Raises ConfigError for other distributions than policy_head's."""
    if isinstance(distribution, Categorical):
        return distribution.log_probs.flatten(-2)
    if isinstance(distribution, DiagonalGaussian):
        mean = distribution.mean
        log_std = distribution.log_std.expand_as(mean)
        return torch.cat([mean, log_std], -1)
    raise ConfigError("--teacher needs a network whose policy_head is policy_head(...)")


def divergence(teacher: Tensor, distribution: Any) -> Tensor:
    """Compute KL(teacher || distribution) (...), given the teacher's parameters (..., W).

    Of choices: sum p (log p - log q) (Cover & Thomas 2006, eq. 2.26). Of normals, from mean m and
    deviation s to mean n and deviation t: log(t / s) + (s^2 + (m - n)^2) / (2 t^2) - 1/2 (Rasmussen
    & Williams 2006, eq. A.23)."""
    if isinstance(distribution, Categorical):
        log_probs = teacher.view_as(distribution.log_probs)
        distances = log_probs - distribution.log_probs
        weighted = log_probs.exp() * distances
        return weighted.sum((-2, -1))
    mean, log_std = teacher.chunk(2, -1)
    change = log_std - distribution.log_std
    inverse = (-distribution.log_std).exp()
    distances = (mean - distribution.mean) * inverse
    ratios = (2 * change).exp()
    squares = ratios + distances.square()
    divergences = 0.5 * squares - change - 0.5
    return divergences.sum(-1)
