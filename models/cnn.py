"""Trunks for images."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ppo.models.actor_critic import Trunk
from ppo.models.distributions import orthogonal
from ppo.models.errors import ModelMismatch
from ppo.models.mlp import VectorTrunk

MakeLayers = Callable[[tuple[int, ...], int], nn.Module]  # from (H, W, C) and a number of features


class ImageTrunk(Trunk):
    """Convolutions on images (B, H, W, C) uint8, which are scaled to [0, 1] here; as they lie in memory, channels last,
    convolutions take them fastest.

    in_bfloat16: it computes in it, with float32 weights in training; heads are float32 always."""

    def __init__(self, layers: nn.Module, size: int, in_bfloat16: bool) -> None:
        super().__init__()
        self.layers: Any = layers
        self.num_features, self.in_bfloat16 = size, in_bfloat16

    def prepare_to_act(self) -> None:
        if self.in_bfloat16:  # else every step would convert the weights
            self.layers.to(torch.bfloat16)
            self.layers[0].float()  # PixelConv2d rounds its weights after it has scaled them

    def forward(self, observations: Tensor) -> Tensor:
        images = observations.permute(0, 3, 1, 2).to(
            torch.bfloat16 if self.in_bfloat16 else torch.float32
        )
        with torch.autocast(observations.device.type, torch.bfloat16, enabled=self.in_bfloat16):
            return self.layers(images).float()


class ImageAndVectorTrunk(Trunk):
    """A trunk for the first numbers of observations (B, n), the pixels of an image, and one for the others."""

    def __init__(self, shape: tuple[int, ...], images: ImageTrunk, vectors: VectorTrunk) -> None:
        super().__init__()
        self.shape, self.images, self.vectors = shape, images, vectors
        self.num_features = images.num_features + vectors.num_features

    def forward(self, observations: Tensor) -> Tensor:
        pixels, others = observations.tensor_split([math.prod(self.shape)], 1)
        return torch.cat([self.images(pixels.unflatten(1, self.shape)), self.vectors(others)], 1)


def nature(shape: tuple[int, ...], hidden_size: int, last_width: int = 64) -> nn.Module:
    """Mnih et al. 2015, methods: three convolutions and a hidden layer."""
    layers = [
        PixelConv2d(shape[-1], 32, 8, stride=4),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.Conv2d(64, last_width, 3),
    ]
    return _trunk(
        [part for layer in layers for part in (layer, nn.ReLU(inplace=True))], shape, hidden_size
    )


def impala(shape: tuple[int, ...], hidden_size: int) -> nn.Module:
    """Espeholt et al. 2018, figure 3 (right), without the LSTM: three sections, each of which halves the image."""
    layers: list[nn.Module] = []
    for before, width in zip((shape[-1], 16, 32), (16, 32, 32), strict=True):
        convolution = nn.Conv2d if layers else PixelConv2d
        layers += [
            convolution(before, width, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            Residual(width),
            Residual(width),
        ]
    return _trunk([*layers, nn.ReLU()], shape, hidden_size)


class PixelConv2d(nn.Conv2d):
    """A convolution of pixels 0 to 255 as if they were scaled to [0, 1]: it is its weights that are, being fewer."""

    def forward(self, pixels: Tensor) -> Tensor:
        return self._conv_forward(pixels, self.weight * (1 / 255), self.bias)


class FlattenPixels(nn.Module):
    """Images (B, C, H, W) that lie in memory with channels last to vectors (B, H * W * C), without a copy."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 2, 3, 1).flatten(1)


class Residual(nn.Module):
    """Adds to images what two convolutions find in them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, images: Tensor) -> Tensor:
        return images + self.layers(images)


def _trunk(layers: list[nn.Module], shape: tuple[int, ...], hidden_size: int) -> nn.Module:
    """Layers on images (H, W, C), then a hidden layer. Raises ModelMismatch if the images are too small for them."""
    try:
        num_features = nn.Sequential(*layers, FlattenPixels())(
            torch.zeros(1, shape[2], *shape[:2])
        ).shape[1]
    except RuntimeError as error:
        raise ModelMismatch(
            f"--screen_size={shape[0]} is too small for this network: give a larger one"
        ) from error
    trunk = nn.Sequential(
        *layers, FlattenPixels(), nn.Linear(num_features, hidden_size), nn.ReLU(inplace=True)
    )
    for layer in trunk.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            orthogonal(layer, math.sqrt(2))
    return trunk


LAYERS: dict[str, MakeLayers] = {
    "cnn": nature,
    "cnn_small": partial(nature, last_width=32),
    "impala": impala,
}
