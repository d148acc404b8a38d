"""Observations that are images, of any environment."""

from typing import Any

import cv2
import gymnasium
import numpy as np
from gymnasium import spaces

MAX_CHANNELS = 128  # of OpenCV's images
cv2.setNumThreads(1)  # a worker has one core to itself


class RepeatAction(gymnasium.Wrapper):
    """Each action is held for a number of steps, or to the end of the episode; rewards are added up."""

    def __init__(self, env: gymnasium.Env, times: int) -> None:
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class StackImages(gymnasium.Wrapper):
    """The last num_images observations, each (H, W) or (H, W, C) uint8, as one (size, size, num_images * channels):
    the oldest first, after a reset all the same. Colours become gray; other channels stay as they are. The array of the
    observation is used again."""

    def __init__(self, env: gymnasium.Env, size: int, num_images: int) -> None:
        super().__init__(env)
        self.size, self.num_images = (size, size), num_images
        shape = env.observation_space.shape or ()
        self.is_colour, num_channels = shape[2:] == (3,), shape[2] if len(shape) == 3 else 1
        depth = num_images * (1 if self.is_colour else num_channels)
        if not 0 < depth <= MAX_CHANNELS:
            limit = f"{MAX_CHANNELS} channels in a stack of {num_images}"
            raise gymnasium.error.Error(f"images {shape} are to be height x width x channels, with at most {limit}")
        self.stack = np.zeros((size, size, depth), np.uint8)
        self.observation_space = spaces.Box(0, 255, self.stack.shape, np.uint8)

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        self.planes = self._planes(observation) * self.num_images
        return self._merged(), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        newest = self._planes(observation)
        self.planes = [*self.planes[len(newest) :], *newest]
        return self._merged(), reward, terminated, truncated, info

    def _planes(self, image: np.ndarray) -> list[Any]:
        """The channels (size, size) of an image, gray if it has three."""
        if self.is_colour:
            image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        channels = cv2.split(image) if image.ndim == 3 else [image]
        return [cv2.resize(channel, self.size, interpolation=cv2.INTER_AREA) for channel in channels]

    def _merged(self) -> np.ndarray:
        return cv2.merge(self.planes, self.stack).reshape(self.stack.shape)
