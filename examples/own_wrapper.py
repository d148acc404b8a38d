"""Wrap a simulator that sometimes fails: the episode ends there, and training continues.

python main.py CartPole-v1 --wrapper='examples.own_wrapper:EndAtException(attempts=3)'
"""

from typing import Any

import gymnasium


class EndAtException(gymnasium.Wrapper):
    """Truncate an episode whose step raises, with the observation before it; repeat a reset that
    raises. The metric env/failed is the share of episodes that ended this way."""

    def __init__(self, env: gymnasium.Env, attempts: int = 3) -> None:
        super().__init__(env)
        self.attempts = attempts

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        for attempt in range(1, self.attempts + 1):
            try:
                self.last, info = self.env.reset(**options)
                break
            except Exception:
                if attempt == self.attempts:
                    raise
        return self.last, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        try:
            self.last, reward, terminated, truncated, info = self.env.step(action)
        except Exception:
            return self.last, 0.0, False, True, {"failed": True}
        return self.last, reward, terminated, truncated, {**info, "failed": False}
