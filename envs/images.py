"""Preprocess image observations: gray or colours, resizing, stacking."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo.envs.errors import EnvironmentUnavailable

try:
    import cv2
except ImportError as error:
    raise EnvironmentUnavailable(
        f"OpenCV cannot be loaded ({error}): apt-get install libgl1 libglib2.0-0, or pip install "
        "opencv-python-headless in place of opencv-python"
    ) from error

MAX_CHANNELS = 128  # of OpenCV's images
STACKED = (4, 12)  # channels of a stack that an environment makes: of four images, by custom
cv2.setNumThreads(1)  # a worker has one core to itself


@dataclass(frozen=True)
class ImageReader:
    """Read an image (H, W), (H, W, C) or (C, H, W) uint8, the latter if is_transposed, as (size,
    size, channels). is_made_gray: whether its three channels, taken for RGB, become one."""

    size: int
    is_transposed: bool
    is_made_gray: bool

    @property
    def rule(self) -> str:
        """What it does, for those who do it elsewhere."""
        gray = "gray = 0.299 R + 0.587 G + 0.114 B as cv2.COLOR_RGB2GRAY, " * self.is_made_gray
        channels = "channels last, " * self.is_transposed
        return f"{channels}{gray}resized to {self.size} x {self.size} as by cv2.INTER_AREA"

    def planes(self, image: Any) -> list[np.ndarray]:
        """Return the channels (size, size) of an image."""
        if self.is_transposed:
            image = np.moveaxis(image, 0, -1)
            image = np.ascontiguousarray(image[..., 0] if image.shape[2] == 1 else image)
        if self.is_made_gray:
            image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        channels = cv2.split(image) if image.ndim == 3 else [image]
        size = (self.size, self.size)
        return [cv2.resize(channel, size, interpolation=cv2.INTER_AREA) for channel in channels]

    def __call__(self, image: Any) -> np.ndarray:
        return np.stack(self.planes(np.ascontiguousarray(image)), axis=-1)


class ImageStack:
    """Resize images and stack the last num_images of them: (size, size, num_images * channels).

    Images are (H, W), (H, W, C) or (C, H, W) uint8. Three channels are taken for RGB and converted
    to grayscale, unless in_color; others are kept. (4, H, W) and (12, H, W) are taken for a stack
    of four, and not stacked again. The oldest image comes first; the first image of an episode
    fills the whole stack. The returned array is reused. space: its Box; treatment: a description
    for the user. Raises gymnasium.error.Error for too many channels."""

    def __init__(
        self, image_space: spaces.Box, size: int, num_images: int, in_color: bool = False
    ) -> None:
        shape = image_space.shape
        is_transposed = len(shape) == 3 and shape[0] < min(shape[1:])
        if is_transposed:
            shape = (*shape[1:], shape[0])
            num_images = 1 if shape[2] in STACKED else num_images
        self.num_images = num_images
        channels = shape[2:]
        is_rgb = channels == (3,)
        self.is_color = is_rgb and in_color
        self.read = ImageReader(size, is_transposed, is_rgb and not in_color)
        depth = num_images
        if channels and not self.read.is_made_gray:
            depth *= channels[0]
        if not 0 < depth <= MAX_CHANNELS:
            raise gymnasium.error.Error(
                f"images {image_space.shape} in a stack of {num_images} have more than "
                f"{MAX_CHANNELS} channels: give a lower --frame_stack, or a wrapper"
            )
        self.stack = np.zeros((size, size, depth), np.uint8)
        self.space = spaces.Box(0, 255, self.stack.shape, np.uint8)
        colors = ""
        if is_rgb:
            colors = f" in {'color' if in_color else 'gray'}"
        self.treatment = f"{image_space.shape}{colors} {size} x {size}, {num_images} stacked"
        self.planes: list[np.ndarray] = []

    def clear(self) -> None:
        """Empty the stack at the beginning of an episode."""
        self.planes = []

    def restore(self, stacked: np.ndarray) -> None:
        """Restore the images from what was returned last."""
        self.planes = list(cv2.split(stacked))

    def __call__(self, image: Any) -> np.ndarray:
        """Push an image (H, W), (H, W, C) or (C, H, W), and return the stack."""
        newest = self.read.planes(image)
        previous = self.planes or newest * self.num_images
        self.planes = [*previous[len(newest) :], *newest]
        return cv2.merge(self.planes, self.stack).reshape(self.stack.shape)
