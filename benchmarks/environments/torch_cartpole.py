"""Many of gymnasium's CartPole-v1 at once, in torch tensors on a device, as GPU simulators are."""

import math
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces

GRAVITY = 9.8
MASS_OF_POLE = 0.1
MASS = 1.1  # of cart and pole
LENGTH = 0.5  # half of the pole's
FORCE = 10.0
SECONDS = 0.02  # of a step
MAX_POSITION = 2.4
MAX_ANGLE = math.radians(12)


class TorchCartPole:
    """A batch that begins the next episode in the step that ends one.

    Observations (n, 4) float32: position, velocity, angle and angular velocity, integrated by Euler
    from the equations of Barto, Sutton and Anderson (1983) as gymnasium has them. device: where the
    tensors are; max_episode_steps: 500 by default."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": "same_step"}
    single_observation_space = spaces.Box(-np.inf, np.inf, (4,))
    single_action_space = spaces.Discrete(2)

    def __init__(
        self, num_envs: int, device: str = "cpu", max_episode_steps: int | None = None
    ) -> None:
        self.num_envs = num_envs
        self.limit = max_episode_steps or 500
        self.generator = torch.Generator(device)
        self.states = torch.zeros(num_envs, 4, device=device)
        self.lengths = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.rewards = torch.ones(num_envs, device=device)

    def reset(self, seed: int, options: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
        self.generator.manual_seed(seed)
        self.states = self._first_states()
        self.lengths.zero_()
        return self.states, {}

    def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
        """actions: (n,) int64 on the device, 0 to push left, 1 right."""
        _, velocity, angle, turning = self.states.unbind(1)
        sine, cosine = angle.sin(), angle.cos()
        force = (2 * actions - 1) * FORCE
        pull = (force + MASS_OF_POLE * LENGTH * turning**2 * sine) / MASS
        turn = (GRAVITY * sine - cosine * pull) / (
            LENGTH * (4 / 3 - MASS_OF_POLE * cosine**2 / MASS)
        )
        push = pull - MASS_OF_POLE * LENGTH * turn * cosine / MASS
        changes = torch.stack([velocity, push, turning, turn], 1)
        last = self.states + SECONDS * changes
        self.lengths += 1
        terminations = (last[:, 0].abs() > MAX_POSITION) | (last[:, 2].abs() > MAX_ANGLE)
        truncations = (self.lengths >= self.limit) & ~terminations
        ended = terminations | truncations
        self.lengths[ended] = 0
        self.states = torch.where(ended[:, None], self._first_states(), last)
        return self.states, self.rewards, terminations, truncations, {"final_obs": last}

    def close(self) -> None:
        pass

    def _first_states(self) -> torch.Tensor:
        numbers = torch.rand(self.states.shape, generator=self.generator, device=self.states.device)
        return 0.1 * numbers - 0.05
