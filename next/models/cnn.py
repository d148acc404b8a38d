"""Convolutional networks for images, alone or together with numbers."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from ppo.envs.observations import NUMBERS, Layout
from ppo.errors import ConfigError
from ppo.models.actor_critic import Trunk
from ppo.models.distributions import orthogonal
from ppo.models.mlp import VectorTrunk

if TYPE_CHECKING:
    from ppo.config import Config

MakeConvolutions = Callable[[int], list[nn.Module]]  # from the number of channels
NUM_UNITS_OF_NUMBERS = 64  # in each hidden layer for numbers next to images


class ImageTrunk(Trunk):
    """A CNN and a hidden layer on images (B, H, W, C) uint8, scaled to [0, 1] by the CNN.

    Images keep their channels-last memory layout, on which convolutions are fastest. precision:
    float32 or bfloat16, of the arithmetic here; trained weights and all heads stay float32.

    Raises ConfigError if images of this shape (H, W, C) are too small for the convolutions."""

    def __init__(
        self, make_convolutions: MakeConvolutions, shape: Any, *, size: int, precision: str
    ) -> None:
        super().__init__()
        height, width, num_channels = shape
        self.layers = nn.Sequential(*make_convolutions(num_channels), FlattenPixels())
        try:
            num_inputs = self.layers(torch.zeros(1, num_channels, height, width)).shape[1]
        except RuntimeError as error:
            raise ConfigError(
                f"--screen_size={height} is too small for this network: give a larger one"
            ) from error
        self.layers.extend([nn.Linear(num_inputs, size), nn.ReLU(inplace=True)])
        for layer in self.layers.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                orthogonal(layer, math.sqrt(2))
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
    """A trunk for each image and one for all numbers, and a hidden layer on all their features.

    images, vectors: the names of these parts of observations, which are a dict."""

    def __init__(
        self, images: dict[str, ImageTrunk], vectors: list[str], vector_trunk: VectorTrunk | None
    ) -> None:
        super().__init__()
        self.images = [*images]
        self.vectors = vectors
        trunks: list[Trunk] = [*images.values()]
        if vector_trunk:
            trunks.append(vector_trunk)
        self.trunks = nn.ModuleList(trunks)
        self.num_features = trunks[0].num_features
        num_inputs = sum(trunk.num_features for trunk in trunks)
        self.merge = orthogonal(nn.Linear(num_inputs, self.num_features), math.sqrt(2))

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        inputs = [observations[name] for name in self.images]
        if self.vectors:
            inputs.append(torch.cat([observations[name].float() for name in self.vectors], 1))
        features = [trunk(x) for trunk, x in zip(self.trunks, inputs, strict=True)]
        return self.merge(torch.cat(features, 1)).relu()


class PixelConv2d(nn.Conv2d):
    """A convolution on pixels 0 to 255 that scales them to [0, 1].

    The weights are scaled instead of the pixels: there are fewer of them."""

    def forward(self, pixels: Tensor) -> Tensor:
        return self._conv_forward(pixels, self.weight * (1 / 255), self.bias)


class FlattenPixels(nn.Module):
    """Flatten channels-last images (B, C, H, W) to (B, H * W * C), without a copy."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 2, 3, 1).flatten(1)


class Residual(nn.Module):
    """A residual block of two convolutions (He et al. 2016, pre-activation variant)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.add(images, self.layers(images))


def nature(num_channels: int, last_width: int = 64) -> list[nn.Module]:
    """Make the three convolutions of the Nature CNN (Mnih et al. 2015, methods)."""
    return [
        PixelConv2d(num_channels, 32, 8, stride=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, last_width, 3),
        nn.ReLU(inplace=True),
    ]


def impala(num_channels: int) -> list[nn.Module]:
    """Make the IMPALA CNN: three sections, each of which halves height and width.

    Espeholt et al. 2018, figure 3 (right), without the LSTM."""
    layers: list[nn.Module] = []
    for width in (16, 32, 32):
        convolution = nn.Conv2d if layers else PixelConv2d
        layers += [
            convolution(num_channels, width, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            Residual(width),
            Residual(width),
        ]
        num_channels = width
    return [*layers, nn.ReLU()]


def make_image_trunk(
    make_convolutions: MakeConvolutions, layout: Layout, config: "Config", size: int
) -> Trunk:
    """Make a trunk of an ImageTrunk for each image and a VectorTrunk for all numbers."""

    def image_trunk(space: Box) -> ImageTrunk:
        return ImageTrunk(make_convolutions, space.shape, size=size, precision=config.precision)

    if len(layout.tables) == 1:
        return image_trunk(layout.tables[NUMBERS])
    images = {
        part.name: image_trunk(layout.tables[f"images.{part.name}"]) for part in layout.images
    }
    vector_trunk = None
    if layout.has_numbers:
        sizes = [NUM_UNITS_OF_NUMBERS] * config.num_layers
        vector_trunk = VectorTrunk(layout.tables[NUMBERS], config.activation, sizes)
    return PartsTrunk(images, [part.name for part in layout.vectors], vector_trunk)
