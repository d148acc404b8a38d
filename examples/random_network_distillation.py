"""Reward the policy for what it has not seen yet: random network distillation (RND).

Burda et al. 2018, "Exploration by Random Network Distillation". A network learns to predict the
outputs of another one, which is random and stays as it is. Where it fails, it has seen little, so
its error is added to the reward. The paper gives the bonus a value network and a discount of its
own; here both rewards have the same. The first command finds the treasure, the second does not:

python main.py --env_name=examples.random_network_distillation:DeepSea --normalize_rewards=False \
    --total_steps=60000 --learner=examples.random_network_distillation:Curious
python main.py --env_name=examples.random_network_distillation:DeepSea --normalize_rewards=False \
    --total_steps=60000
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy import ndarray
from torch import Tensor, nn

from ppo import Learner
from ppo.algorithm.adam import Adam
from ppo.algorithm.flat_weights import ADAM_EPSILON, flatten_parameters
from ppo.algorithm.rollout import Rollout
from ppo.envs.normalize import NormalizeReward, RunningMeanStd
from ppo.system.state_dict import State, add_prefix, select_prefix

SIZE = 15
BATCH_SIZE = 256


class DeepSea(gymnasium.Env):
    """Dive SIZE rows deep, and at each go left or, for 0.01 / SIZE, right (Osband et al. 2020).

    Only who always goes right finds a treasure of 1: at random, once in 2 ** SIZE episodes.
    """

    observation_space = spaces.MultiBinary(2 * SIZE)  # row and column, one-hot
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.row = self.column = 0
        return self.observe(), {}

    def step(self, action: int) -> Any:
        is_found = self.row == self.column == SIZE - 1 and action == 1
        self.row += 1
        self.column = max(self.column + (1 if action else -1), 0)
        is_over = self.row == SIZE
        info = {"is_success": is_found} if is_over else {}
        return self.observe(), is_found - 0.01 / SIZE * action, is_over, False, info

    def observe(self) -> ndarray:
        places = np.zeros((2, SIZE), np.int8)
        places[0, min(self.row, SIZE - 1)] = 1
        places[1, min(self.column, SIZE - 1)] = 1
        return places.ravel()


class Curious(Learner):
    """Add to rewards how badly a network predicts random features of what actions led to.

    For the mlp, and for one process: each of several ranks would learn to predict by itself.
    """

    coefficient = 1.0

    def __init__(self, model: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(model, *arguments, **options)
        num_inputs = model.policy_trunk.layers[0].in_features
        self.networks = nn.ModuleDict(
            {"random": network(num_inputs), "trained": network(num_inputs)}
        )
        weights, gradients = flatten_parameters(self.networks["trained"])
        parameter = nn.Parameter(weights)
        parameter.grad = gradients
        self.predictor_optimizer = Adam(parameter, lr=1e-3, eps=ADAM_EPSILON)
        self.seen = RunningMeanStd((num_inputs,))
        self.scale = NormalizeReward(self.config.num_envs, self.config.gamma, enabled=True)

    def advantages(
        self, rollout: Rollout, rewards: ndarray, values: ndarray, next_values: ndarray
    ) -> ndarray:
        observations = rollout.observations[1:].reshape(rewards.size, -1)
        self.seen.update(observations, self.peers.gather)
        deviation = np.sqrt(self.seen.variance + 1e-8)
        standardized = ((observations - self.seen.mean) / deviation).clip(-5, 5)
        inputs = torch.as_tensor(standardized, dtype=torch.float32)
        bonus = self.errors(inputs).numpy().reshape(rewards.shape)
        self.learn_to_predict(inputs)
        never = np.zeros_like(rollout.dones)  # curiosity does not end with an episode (section 2.3)
        bonus = self.scale.update_and_scale(bonus, never, self.peers.gather)
        return super().advantages(rollout, rewards + self.coefficient * bonus, values, next_values)

    def errors(self, inputs: Tensor) -> Tensor:
        """Return the error (B,) of the prediction for inputs (B, n)."""
        wanted = self.networks["random"](inputs).detach()
        return (self.networks["trained"](inputs) - wanted).square().mean(1)

    @torch.enable_grad()
    def learn_to_predict(self, inputs: Tensor) -> None:
        for rows in inputs.split(BATCH_SIZE):
            self.networks["trained"].zero_grad(set_to_none=False)
            self.errors(rows).mean().backward()
            self.predictor_optimizer.step()

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            **add_prefix("rnd.networks", self.networks.state_dict()),
            **add_prefix("rnd.optimizer", self.predictor_optimizer.state),
            **add_prefix("rnd.seen", vars(self.seen)),
            **add_prefix("rnd.scale", vars(self.scale.statistics)),
            "rnd.returns": self.scale.returns,
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.networks.load_state_dict(select_prefix("rnd.networks", state))
        self.predictor_optimizer.load_state_dict(
            {"state": {0: select_prefix("rnd.optimizer", state)}}
        )
        arrays = {name: x.numpy() for name, x in select_prefix("rnd", state).items()}
        self.seen.load_state_dict(select_prefix("seen", arrays))
        self.scale.statistics.load_state_dict(select_prefix("scale", arrays))
        self.scale.returns = arrays["returns"]


def network(num_inputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(num_inputs, 64), nn.ReLU(), nn.Linear(64, 32))
