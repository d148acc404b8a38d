"""Models whose loss is NaN at some gradient steps, or that end there otherwise."""

import math
import os
import signal
from typing import Any

import torch
from torch import Tensor

from examples.own_model import NormalizedActorCritic
from ppo.models.distributions import Distribution


class NanTwice(NormalizedActorCritic):
    """NaN at two gradient steps in a row, in the second iteration of eight."""

    failing = range(11, 13)
    num_steps = 0

    def forward(self, observations: Tensor) -> tuple[Distribution, Tensor]:
        distribution, values = super().forward(observations)
        if self.training:  # not where it acts
            self.num_steps += 1
        is_failing = torch.is_grad_enabled() and self.num_steps in self.failing
        return distribution, values * math.nan if is_failing else values


class Killed(NormalizedActorCritic):
    """Kills its process at the gradient step whose number is in KILL_AT."""

    num_steps = 0

    def forward(self, observations: Tensor) -> tuple[Distribution, Tensor]:
        if self.training:  # not where it acts
            self.num_steps += 1
            if self.num_steps == int(os.environ.get("KILL_AT", 0)):
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(observations)


class NanForever(NanTwice):
    """NaN at every gradient step from there on."""

    failing: Any = range(11, 10**9)


class Huge(NormalizedActorCritic):
    """Takes more of a GPU's memory in gradient steps than there is."""

    def forward(self, observations: Tensor) -> tuple[Distribution, Tensor]:
        if self.training and observations.is_cuda:
            torch.empty(2**44, device=observations.device)
        return super().forward(observations)
