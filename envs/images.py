"""Images: channels, grayscale, resizing and stacking."""

from typing import Any

import cv2
import numpy as np
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.config import Config
from ppo.envs.observations import has_channels_first

STACKED = (4, 12)  # channels of a stack of four images that an environment makes itself
cv2.setNumThreads(1)  # a worker has one core


class ImageStack:
    """Resize images and stack the last of them: (size, size, num_images * channels). Images are
    (H, W), (H, W, C) or (C, H, W) uint8. Three channels are taken for RGB and converted to
    grayscale, unless --image=color; others are kept. (4, H, W) and (12, H, W) are taken for a
    stack. The first image fills the whole stack. The returned array is reused."""

    def __init__(self, space: Box, config: Config) -> None:
        num_images = 4 if config.frame_stack == "auto" else config.frame_stack
        shape = space.shape
        self.channels_first = has_channels_first(shape)
        num_channels = 1
        if len(shape) == 3:
            num_channels = shape[0] if self.channels_first else shape[2]
        if self.channels_first and num_channels in STACKED:
            num_images = 1
        self.is_made_gray = num_channels == 3 and config.image == "gray"
        depth = num_images if self.is_made_gray else num_images * num_channels
        self.size = (config.screen_size, config.screen_size)
        self.num_images = num_images
        self.stack = np.zeros((*self.size, depth), np.uint8)
        self.space = Box(0, 255, self.stack.shape, np.uint8)
        self.planes: list[ndarray] = []

    def __call__(self, image: Any) -> ndarray:
        if self.channels_first:
            image = np.moveaxis(image, 0, -1)
        image = np.ascontiguousarray(image)
        if self.is_made_gray:
            image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        channels = cv2.split(image) if image.ndim == 3 else [image]
        newest = [cv2.resize(x, self.size, interpolation=cv2.INTER_AREA) for x in channels]
        previous = self.planes or newest * self.num_images
        self.planes = [*previous[len(newest) :], *newest]
        return cv2.merge(self.planes, self.stack).reshape(self.stack.shape)
