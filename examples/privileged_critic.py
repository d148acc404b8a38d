"""A critic that reads more than the policy, in training: python -m examples.privileged_critic"""

from typing import Any

import gymnasium
from gymnasium import spaces
from torch import cat, nn

from ppo import Config, load_policy, train
from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import policy_head
from ppo.models.observation_parts import split


class Guess(gymnasium.Env):
    """Guess the sign of a number, which is seen with noise and privileged without."""

    part = spaces.Box(-9, 9, (1,))
    observation_space = spaces.Dict({"seen": part, "privileged": part})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.number, noise = self.np_random.normal(0, [1, 0.3]).astype("f")[:, None]
        return {"seen": self.number + noise, "privileged": self.number}, {}

    def step(self, action: int) -> Any:
        reward = float(action == (self.number[0] > 0))
        return self.reset()[0], reward, True, False, {}


class PrivilegedCritic(ActorCritic):
    policy_parts = ("seen",)  # all that predict and an exported file need

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.space = observation_space
        self.actor = nn.Sequential(nn.Linear(1, 16), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))
        self.policy_head = policy_head(16, action_space, config)

    def forward(self, observations: Any) -> Any:
        parts = split(self.space, observations)
        both = cat([parts["seen"], parts["privileged"]], 1)
        return self.policy_head(self.actor(parts["seen"])), self.critic(both)


if __name__ == "__main__":  # worker processes import this file
    names = [f"examples.privileged_critic:{name}" for name in ("Guess", "PrivilegedCritic")]
    config = Config(env_name=names[0], model=names[1], learning_rate=1e-2, total_steps=8_192)
    policy = load_policy(train(config).checkpoint, *names)
    print("its guess about -1:", policy.predict({"seen": [-1.0]}))
