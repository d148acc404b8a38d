"""Observations that are images, of any environment."""

from typing import Any

import cv2
import gymnasium
import numpy as np
from gymnasium import spaces

MAX_CHANNELS = 128  # of OpenCV's images
cv2.setNumThreads(1)  # a worker has one core to itself


class ImageAndVector(spaces.Box):
    """Vectors of float32 that begin with the pixels of an image (H, W, C)."""

    def __init__(self, low: Any, high: Any, image_shape: tuple[int, ...]) -> None:
        super().__init__(low, high, dtype=np.float32)
        self.image_shape = image_shape


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
    observation is used again.

    key: under which of a Dict's names the images are; what it has beside them stands behind their pixels, all in one
    vector of float32."""

    def __init__(
        self, env: gymnasium.Env, size: int, num_images: int, key: str | None = None
    ) -> None:
        super().__init__(env)
        self.size, self.num_images, self.key = (size, size), num_images, key
        space: Any = env.observation_space
        others = {} if key is None else {name: part for name, part in space.items() if name != key}
        self.others = spaces.Dict(others)
        shape = (space if key is None else space[key]).shape
        self.is_colour, num_channels = shape[2:] == (3,), shape[2] if len(shape) == 3 else 1
        depth = num_images * (1 if self.is_colour else num_channels)
        if not 0 < depth <= MAX_CHANNELS:
            limit = f"{MAX_CHANNELS} channels in a stack of {num_images}"
            raise gymnasium.error.Error(
                f"images {shape} are to be height x width x channels, with at most {limit}"
            )
        self.stack = np.zeros((size, size, depth), np.uint8)
        self.observation_space = spaces.Box(0, 255, self.stack.shape, np.uint8)
        if others:
            beside: Any = spaces.flatten_space(self.others)
            low, high = (
                np.append(np.full(self.stack.size, x), y)
                for x, y in ((0, beside.low), (255, beside.high))
            )
            self.observation_space = ImageAndVector(low, high, self.stack.shape)

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        self.planes = self._planes(observation) * self.num_images
        return self._merged(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        newest = self._planes(observation)
        self.planes = [*self.planes[len(newest) :], *newest]
        return self._merged(observation), reward, terminated, truncated, info

    def restore(self, observation: np.ndarray) -> None:
        """Go on from what was shown last; of images without anything beside them."""
        self.planes = list(cv2.split(observation))

    def _planes(self, observation: Any) -> list[Any]:
        """The channels (size, size) of its image, gray if it has three."""
        image = observation if self.key is None else observation[self.key]
        if self.is_colour:
            image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        channels = cv2.split(image) if image.ndim == 3 else [image]
        return [
            cv2.resize(channel, self.size, interpolation=cv2.INTER_AREA) for channel in channels
        ]

    def _merged(self, observation: Any) -> np.ndarray:
        images = cv2.merge(self.planes, self.stack).reshape(self.stack.shape)
        if not self.others:
            return images
        others: Any = spaces.flatten(self.others, {name: observation[name] for name in self.others})
        return np.concatenate([images.ravel(), others], dtype=np.float32)
