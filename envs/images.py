"""Preprocess observations that are images, of any environment."""

from typing import Any

import cv2
import gymnasium
import numpy as np
from gymnasium import Env, Wrapper, spaces

MAX_CHANNELS = 128  # of OpenCV's images
cv2.setNumThreads(1)  # a worker has one core to itself


class StackImages(Wrapper):
    """Stack the last num_images images to one array (size, size, num_images * channels), uint8.

    Images are (H, W) or (H, W, C) uint8; three channels are colours and become gray, others stay
    as they are. The oldest image is first; after a reset all are the same. The array of the
    observation is reused. key: the name of the images in a Dict; its other parts, flattened,
    follow the pixels in one vector of float32."""

    def __init__(self, env: Env, size: int, num_images: int, key: str | None = None) -> None:
        super().__init__(env)
        self.size = (size, size)
        self.num_images = num_images
        self.key = key
        space: Any = env.observation_space
        others = {}
        if key is not None:
            others = {name: part for name, part in space.items() if name != key}
            space = space[key]
        self.others = spaces.Dict(others)
        channels = space.shape[2:]
        self.is_colour = channels == (3,)
        depth = num_images
        if channels and not self.is_colour:
            depth *= channels[0]
        if not 0 < depth <= MAX_CHANNELS:
            raise gymnasium.error.Error(
                f"images {space.shape} must be height x width x channels, with at most "
                f"{MAX_CHANNELS} channels in a stack of {num_images}"
            )
        self.stack = np.zeros((size, size, depth), np.uint8)
        self.observation_space = spaces.Box(0, 255, self.stack.shape, np.uint8)
        if others:
            parts = [("", self.observation_space), *self.others.items()]
            vector: Any = spaces.flatten_space(spaces.Dict(parts))
            space = spaces.Box(vector.low, vector.high, dtype=np.float32)
            space.image_shape = self.stack.shape  # of the image whose pixels come first
            self.observation_space = space

    def reset(self, **options: Any) -> Any:
        observation, info = self.env.reset(**options)
        self.planes = self._planes(observation) * self.num_images
        return self._merge(observation), info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        newest = self._planes(observation)
        self.planes = [*self.planes[len(newest) :], *newest]
        return self._merge(observation), reward, terminated, truncated, info

    def restore(self, observation: np.ndarray) -> None:
        """Restore the stack from the last observation; only for images without other parts."""
        self.planes = list(cv2.split(observation))

    def _planes(self, observation: Any) -> list[Any]:
        """Return the channels (size, size) of an observation's image, one if it has colours."""
        image = observation if self.key is None else observation[self.key]
        if self.is_colour:
            image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        channels = cv2.split(image) if image.ndim == 3 else [image]
        return [
            cv2.resize(channel, self.size, interpolation=cv2.INTER_AREA) for channel in channels
        ]

    def _merge(self, observation: Any) -> np.ndarray:
        images = cv2.merge(self.planes, self.stack).reshape(self.stack.shape)
        if not self.others:
            return images
        others: Any = spaces.flatten(self.others, observation)
        return np.concatenate([images.ravel(), others], dtype=np.float32)
