"""Groups of rewards, each with a critic of its own: their units no longer matter, weights do.

Mysore et al. 2022, "Multi-Critic Actor Learning"; Zargarbashi et al. 2024, "RobotKeyframing". Every
group has values and advantages of its own, which are standardised before they are added. In the sum
of this environment's rewards, what is gained by reaching the goal is nothing beside the effort, so
that the default learner stands still (leave out --learner and --model):

python main.py --env_name=examples.reward_groups:Reach --reward_term=reach --reward_term=effort \
    --learner=examples.reward_groups:GroupLearner --model=examples.reward_groups:GroupCritic \
    --total_steps=20000 --learning_rate=3e-3
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy import ndarray
from torch import Tensor, nn

from ppo import Learner
from ppo.algorithm.gae import generalized_advantages
from ppo.algorithm.rollout import Batch, Metrics, Rollout
from ppo.envs.normalize import NormalizeReward
from ppo.models.actor_critic import FeedForward
from ppo.models.distributions import Distribution, orthogonal
from ppo.models.mlp import VectorTrunk
from ppo.system.state_dict import State, add_prefix, select_prefix


class Reach(gymnasium.Env):
    """Move a point to the origin, and stay. Infos have the terms of rewards: reach and effort."""

    observation_space = spaces.Box(-9, 9, (2,))
    action_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.place, {}

    def step(self, action: ndarray) -> Any:
        self.steps += 1
        self.place = (self.place + 0.2 * action).clip(-9, 9)
        is_there = bool(np.abs(self.place).max() < 0.2)
        terms = {"reach": 0.01 * is_there, "effort": -float(np.square(action).sum())}
        info = {**terms, "is_success": is_there}
        return self.place, sum(terms.values()), False, self.steps == 20, info


class GroupCritic(FeedForward):
    """An mlp with a value for each --reward_term; PPO sees their sum."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        def make_trunk(layers: Any) -> VectorTrunk:
            return VectorTrunk(observation_space, config, layers or config.hidden_size)

        super().__init__(make_trunk, action_space, config)
        head = nn.Linear(self.value_trunk.num_features, len(config.reward_term))
        self.value_head = orthogonal(head, gain=1.0)

    def heads(self, policy_features: Tensor, value_features: Tensor) -> tuple[Distribution, Tensor]:
        return self.policy_head(policy_features), self.value_head(value_features).sum(-1)

    def group_values(self, observations: Tensor) -> Tensor:
        """Return the values (B, G) of observations (B, n)."""
        return self.value_head(self.value_trunk(observations))


class GroupLearner(Learner):
    """Learn a policy from the weighted sum of G groups' standardised advantages.

    For one process, and for observations that are vectors."""

    weights_of_groups = (1.0, 0.1)  # in the order of the flags --reward_term

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        config = self.config
        self.scales = {
            name: NormalizeReward(config.num_envs, config.gamma, config.normalize_rewards)
            for name in config.reward_term
        }

    @torch.no_grad()
    def make_batch(self, rollout: Rollout, normalize: Any, rewards: ndarray) -> Batch:
        batch = super().make_batch(rollout, normalize, rewards)
        values = self.group_values(normalize(rollout.observations))
        next_values = values[1:].copy()
        if truncated := rollout.info.last_observations:
            steps, environments, last, _ = zip(*truncated, strict=True)
            next_values[steps, environments] = self.group_values(normalize(np.stack(last)))
        advantages = generalized_advantages(
            self.scale(rollout),
            values[:-1],
            next_values,
            terminations=rollout.terminations[..., None],
            truncations=rollout.truncations[..., None],
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
        )
        returns = self.to_device((advantages + values[:-1]).reshape(rewards.size, -1))
        advantages -= advantages.mean((0, 1))
        advantages /= advantages.std((0, 1)) + 1e-8
        combined = advantages @ np.array(self.weights_of_groups, np.float32)
        return {
            **batch,
            "advantages": self.to_device(combined.reshape(-1)),
            "group_returns": returns,
            "returns": returns.sum(1),
        }

    def scale(self, rollout: Rollout) -> ndarray:
        """Return the terms (T, N, G), each divided by the running deviation of its return."""
        terms = np.empty_like(rollout.reward_terms)
        for group, scale in enumerate(self.scales.values()):
            scale.returns[rollout.info.reset_envs] = 0
            terms[..., group] = scale.update_and_scale(
                rollout.reward_terms[..., group], rollout.dones, self.peers.gather
            )
        return terms

    def group_values(self, observations: ndarray) -> ndarray:
        """Return the values (..., G) of normalised observations (..., n)."""
        *shape, size = observations.shape
        rows = self.to_device(observations.reshape(-1, size))
        return self.model.group_values(rows).cpu().numpy().reshape(*shape, -1)

    def loss(self, minibatch: Batch, distribution: Any, values: Tensor) -> tuple[Tensor, Metrics]:
        loss, metrics = super().loss(minibatch, distribution, values.detach())
        errors = self.model.group_values(minibatch["observations"]) - minibatch["group_returns"]
        value_loss = 0.5 * errors.square().mean(0).sum()
        loss = loss + self.value_coef * (value_loss - metrics["value_loss"])
        return loss, {**metrics, "value_loss": value_loss.detach()}

    def state_dict(self) -> State:
        state = super().state_dict()
        for name, scale in self.scales.items():
            numbers = {**vars(scale.statistics), "returns": scale.returns}
            state |= add_prefix(f"reward_term.{name}", numbers)
        return state

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        for name, scale in self.scales.items():
            numbers = select_prefix(f"reward_term.{name}", state)
            arrays = {key: number.numpy() for key, number in numbers.items()}
            scale.statistics.load_state_dict(arrays)
            scale.returns = arrays["returns"]
