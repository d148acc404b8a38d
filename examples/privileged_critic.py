"""A critic that reads more than the policy, in training: python -m examples.privileged_critic"""

from typing import Any

import gymnasium
from gymnasium import spaces

from ppo import load_policy, train


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


if __name__ == "__main__":  # worker processes import this file
    env = "examples.privileged_critic:Guess"
    trained = train(env, policy_keys="seen", learning_rate=1e-2, total_steps=8_192)
    policy = load_policy(trained.checkpoint, env)
    print("its guess about -1:", policy.predict({"seen": [-1.0]}))
