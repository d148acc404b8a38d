"""Reward the policy for what it has not seen yet (Burda et al. 2018, "Exploration by RND").

A network learns to predict the outputs of a random one. Where it fails, it has seen little: its
error is added to the reward. Most seeds find the treasure; without --learner, none does:

python main.py examples.random_network_distillation:DeepSea --normalize_rewards=False \
    --learner=examples.random_network_distillation:Curious --total_steps=60000 --seed=1
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy import ndarray
from torch import Tensor, nn

from ppo import Learner
from ppo.checkpoint import select
from ppo.envs.normalize import NormalizeReward, RunningMeanStd
from ppo.optimizer import Adam, flatten_parameters
from ppo.rollout import Rollout

SIZE = 15


class DeepSea(gymnasium.Env):
    """Dive SIZE rows deep, and at each go left or, for 0.01 / SIZE, right (Osband et al. 2020).

    Only going right in every row finds a treasure of 1: at random, once in 2 ** SIZE episodes."""

    observation_space = spaces.MultiBinary(2 * SIZE)  # row and column, one-hot
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.row = self.column = 0
        return self.observe(), {}

    def step(self, action: int) -> Any:
        is_found = self.row == self.column == SIZE - 1 and action == 1
        self.row += 1
        self.column = min(max(self.column + (1 if action else -1), 0), SIZE - 1)
        reward = is_found - 0.01 / SIZE * action
        return self.observe(), reward, self.row == SIZE, False, {"is_success": is_found}

    def observe(self) -> ndarray:
        return np.eye(SIZE, dtype=np.int8)[[min(self.row, SIZE - 1), self.column]].ravel()


class Curious(Learner):
    """Add to rewards how badly a network predicts random features of what actions led to."""

    coefficient = 1.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        size = self.layout.tables["observations"].shape[0]
        layers = [(nn.Linear(size, 64), nn.ReLU(), nn.Linear(64, 32)) for _ in range(2)]
        self.networks = nn.ModuleList(nn.Sequential(*x) for x in layers).to(self.weights.device)
        self.random, self.trained = self.networks
        self.adam = Adam(flatten_parameters(self.trained), 1e-3)
        self.seen = RunningMeanStd((size,))
        self.scale = NormalizeReward(self.config.num_envs, self.config.gamma)
        self.parts = {"rnd.networks": self.networks, "rnd.seen": self.seen, "rnd.scale": self.scale}

    def advantages(self, rollout: Rollout, rewards: ndarray, *values: ndarray) -> ndarray:
        observations = rollout.observations[1:].reshape(rewards.size, -1)
        self.seen.update(observations)
        standardized = (observations - self.seen.mean) / np.sqrt(self.seen.variance + 1e-8)
        inputs = self.table(standardized.clip(-5, 5))
        bonus = self.errors(inputs).numpy(force=True).reshape(rewards.shape)
        self.learn_to_predict(inputs)
        bonus = self.scale.update_and_scale(bonus, rollout.dones)
        return super().advantages(rollout, rewards + self.coefficient * bonus, *values)

    def errors(self, inputs: Tensor) -> Tensor:
        """Return the errors (B,) of predictions for inputs (B, n)."""
        return (self.trained(inputs) - self.random(inputs).detach()).square().mean(1)

    @torch.enable_grad()
    def learn_to_predict(self, inputs: Tensor) -> None:
        for rows in inputs.split(256):
            self.trained.zero_grad(set_to_none=False)
            self.errors(rows).mean().backward()
            self.adam.step()

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict() | {f"rnd.adam.{x}": y for x, y in self.adam.moments.items()}
        for name, part in self.parts.items():
            state |= {f"{name}.{key}": value for key, value in part.state_dict().items()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        state = {x: torch.as_tensor(y) for x, y in state.items() if x.startswith("rnd.")}
        self.adam.load_state_dict({"state": {0: select("rnd.adam", state)}})
        for name, part in self.parts.items():
            part.load_state_dict(select(name, state))
