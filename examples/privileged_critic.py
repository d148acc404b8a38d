"""Train a critic that sees more than the policy, such as a simulator's true state.

python main.py examples.privileged_critic:Guess --model=examples.privileged_critic:Asymmetric \
    --learning_rate=1e-2 --total_steps=8192
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from torch import Tensor, nn

from ppo import Config
from ppo.models.actor_critic import ActorCritic, Outputs
from ppo.models.distributions import policy_head

NUM_SEEN = 1  # the policy sees the first numbers of an observation


class Guess(gymnasium.Env):
    """Guess the sign of a number. Observations hold it with noise, then without."""

    observation_space = spaces.Box(-9, 9, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.number, noise = self.np_random.normal(0, [1, 0.3])
        return np.array([self.number + noise, self.number], np.float32), {}

    def step(self, action: int) -> Any:
        reward = float(action == (self.number > 0))
        return self.observation_space.low, reward, True, False, {}


class Asymmetric(ActorCritic):
    """A policy that reads the first numbers, and a value function that reads all of them. Outside
    of the simulator, the policy can be given any values for the rest."""

    def __init__(self, observation_space: Any, action_space: Any, config: Config) -> None:
        super().__init__()
        size = int(config.hidden_size)
        num_inputs = observation_space.shape[0]
        self.policy = nn.Sequential(nn.Linear(NUM_SEEN, size), nn.Tanh())
        self.value = nn.Sequential(nn.Linear(num_inputs, size), nn.Tanh(), nn.Linear(size, 1))
        self.policy_head = policy_head(size, action_space, config)

    def forward(self, observations: Tensor) -> Outputs:
        observations = observations.float()
        distribution = self.policy_head(self.policy(observations[:, :NUM_SEEN]))
        return distribution, self.value(observations).squeeze(-1)
