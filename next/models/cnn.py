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
    """A CNN and a hidden layer on images (B, H, W, C) uint8, which the CNN scales to [0, 1].

    Images keep their channels-last memory layout, on which convolutions are fastest. precision:
    float32 or bfloat16, of the arithmetic here; trained weights and all heads stay float32. Raises
    ConfigError if images of this shape (H, W, C) are too small for the convolutions."""

    def __init__(self, convolutions: list[Any], shape: Any, size: int, precision: str) -> None:
        super().__init__()
        height, width, num_channels = shape
        self.layers = nn.Sequential(*convolutions, FlattenPixels())
        try:
            num_inputs = self.layers(torch.zeros(1, num_channels, height, width)).shape[1]
        except RuntimeError as error:
            raise ConfigError(
                f"--screen_size={height} is too small for this network: give a larger one"
            ) from error
        self.layers.extend([nn.Linear(num_inputs, size), nn.ReLU(inplace=True)])
        for layer in self.layers.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                orthogonal(layer)
        self.num_features = size
        self.dtype = getattr(torch, precision)

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
        num_inputs = sum(trunk.num_features for trunk in trunks)
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


def nature(num_channels: int, last_width: int) -> list[nn.Module]:
    """Make the three convolutions of the Nature CNN (Mnih et al. 2015, methods)."""
    return [
        PixelConv2d(num_channels, 32, 8, stride=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, last_width, 3),
        nn.ReLU(inplace=True),
    ]


def make_trunk(spaces: Spaces, size: int | str, last_width: int = 64) -> Trunk:
    """Make a VectorTrunk for numbers, or an ImageTrunk for each image and a VectorTrunk for the
    numbers next to them. last_width: channels of the last convolution."""
    layout = spaces.layout
    if not layout.images:
        return VectorTrunk(spaces, size)
    trunks: list[Trunk] = []
    for part in layout.images:
        shape = layout.tables[layout.table_of(part)].shape
        convolutions = nature(shape[-1], last_width)
        trunks.append(ImageTrunk(convolutions, shape, int(size), spaces.config.precision))
    if layout.has_numbers:
        trunks.append(VectorTrunk(spaces, NUM_UNITS_OF_NUMBERS))
    return PartsTrunk(layout, trunks) if len(trunks) > 1 else trunks[0]
