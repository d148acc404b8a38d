"""Episodes as a player would count them."""

from typing import Any

import gymnasium

WHOLE_EPISODE = "whole_episode"  # in the info of an episode's last step: its (return, length)


class RecordEpisode(gymnasium.Wrapper):
    """Adds up rewards and steps from reset to reset. What ends episodes for the learner only belongs outside."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self.total, self.length = 0.0, 0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.total += float(reward)
        self.length += 1
        if terminated or truncated:
            info = {**info, WHOLE_EPISODE: (self.total, self.length)}
        return observation, reward, terminated, truncated, info
