"""Convolutional networks for images, alone or together with numbers."""

from typing import Any

import torch
from torch import Tensor, nn

from ppo.envs.make import Spaces
from ppo.envs.observations import Layout
from ppo.errors import ConfigError
from ppo.models.actor_critic import Trunk
from ppo.models.distributions import orthogonal
from ppo.models.mlp import VectorTrunk

NUM_UNITS_OF_NUMBERS = 64  # in each hidden layer for numbers next to images


class ImageTrunk(Trunk):
    """The Nature CNN (Mnih et al. 2015, methods) on images (B, H, W, C) uint8, scaled to [0, 1].

    Images stay channels-last in memory, on which convolutions are fastest; weights stay float32.
    Raises ConfigError if images of this shape (H, W, C) are too small."""

    def __init__(self, shape: Any, size: int, spaces: Spaces) -> None:
        super().__init__()
        height, width, num_channels = shape
        relu = nn.ReLU(inplace=True)
        self.layers = nn.Sequential(
            PixelConv2d(num_channels, 32, 8, stride=4),
            relu,
            nn.Conv2d(32, 64, 4, stride=2),
            relu,
            nn.Conv2d(64, 32 if spaces.config.model == "cnn_small" else 64, 3),
            relu,
            FlattenPixels(),
        )
        try:
            num_inputs = self.layers(torch.zeros(1, num_channels, height, width)).shape[1]
        except RuntimeError as error:
            raise ConfigError(f"--screen_size={height} is too small for this network") from error
        self.layers.extend([nn.Linear(num_inputs, size), relu])
        for layer in self.layers:
            if hasattr(layer, "weight"):
                orthogonal(layer)
        self.num_features = size
        self.dtype = getattr(torch, spaces.config.precision)

    def prepare_to_act(self) -> None:
        self.layers.to(self.dtype)  # so that they are not converted in every step
        self.layers[0].float()  # PixelConv2d rounds its weights after it has scaled them

    def forward(self, observations: Tensor) -> Tensor:
        x = observations.permute(0, 3, 1, 2).to(self.dtype)
        with torch.autocast(x.device.type, torch.bfloat16, self.dtype == torch.bfloat16):
            return self.layers(x).float()


class PartsTrunk(Trunk):
    """A trunk for each image and one for all numbers, and a hidden layer on all their features."""

    def __init__(self, layout: Layout, trunks: list[Trunk]) -> None:
        super().__init__()
        self.layout = layout
        self.trunks = nn.ModuleList(trunks)
        self.num_features = trunks[0].num_features
        num_inputs = sum(x.num_features for x in trunks)
        self.merge = orthogonal(nn.Linear(num_inputs, self.num_features))

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        inputs = [observations[part.name] for part in self.layout.images]
        if self.layout.has_numbers:
            numbers = [observations[part.name].float() for part in self.layout.vectors]
            inputs.append(torch.cat(numbers, 1))
        features = [trunk(x) for trunk, x in zip(self.trunks, inputs, strict=True)]
        return self.merge(torch.cat(features, 1)).relu()


class PixelConv2d(nn.Conv2d):
    """A convolution on pixels 0 to 255, scaled to [0, 1] by way of the weights, which are fewer."""

    def forward(self, pixels: Tensor) -> Tensor:
        return self._conv_forward(pixels, self.weight * (1 / 255), self.bias)


class FlattenPixels(nn.Module):
    """Flatten channels-last images (B, C, H, W) to (B, H * W * C), without a copy."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 2, 3, 1).flatten(1)


def make_image_trunk(spaces: Spaces, size: int) -> Trunk:
    """Make an ImageTrunk for each image, and a VectorTrunk for the numbers next to them."""
    layout = spaces.layout
    trunks: list[Trunk] = []
    for image in layout.images:
        shape = layout.tables[layout.table_of(image)].shape
        trunks.append(ImageTrunk(shape, size, spaces))
    if layout.has_numbers:
        trunks.append(VectorTrunk(spaces, NUM_UNITS_OF_NUMBERS))
    return PartsTrunk(layout, trunks) if len(trunks) > 1 else trunks[0]
