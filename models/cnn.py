"""Trunks for images."""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from gymnasium.spaces import Box, Dict, flatten_space
from torch import Tensor, nn

from ppo.models import MODELS
from ppo.models.actor_critic import Trunk
from ppo.models.distributions import orthogonal
from ppo.models.errors import ModelMismatch
from ppo.models.mlp import VectorTrunk
from ppo.models.observation_parts import images_of, is_packed, split, vectors_of

if TYPE_CHECKING:
    from ppo.config.config import Config

MakeConvolutions = Callable[[int], list[nn.Module]]  # from the number of channels


class ImageTrunk(Trunk):
    """A CNN and a hidden layer on images (B, H, W, C) uint8, scaled to [0, 1] by the CNN.

    Images keep their channels-last memory layout, on which convolutions are fastest.
    config.precision: float32 or bfloat16, of the arithmetic here; trained weights and all heads
    stay float32.

    Raises ModelMismatch if images of this shape (H, W, C) are too small for the convolutions.
    """

    def __init__(
        self,
        make_convolutions: MakeConvolutions,
        shape: tuple[int, int, int],
        config: "Config",
        size: int,
    ) -> None:
        super().__init__()
        height, width, num_channels = shape
        # Not on the meta device: the shape of the output must be computed.
        with torch.device("cpu"):
            self.layers = nn.Sequential(*make_convolutions(num_channels), FlattenPixels())
            try:
                pixels = torch.zeros(1, num_channels, height, width)
                num_inputs = self.layers(pixels).shape[1]
            except RuntimeError as error:
                raise ModelMismatch(
                    f"--screen_size={height} is too small for this network: give a larger one"
                ) from error
        self.layers.extend([nn.Linear(num_inputs, size), nn.ReLU(inplace=True)])
        for layer in self.layers.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                orthogonal(layer, math.sqrt(2))
        self.num_features = size
        self.dtype = getattr(torch, config.precision)

    def prepare_to_act(self) -> None:
        self.layers.to(self.dtype)  # so that they are not converted in every step
        self.layers[0].float()  # PixelConv2d rounds its weights after it has scaled them

    def forward(self, observations: Tensor) -> Tensor:
        x = observations.permute(0, 3, 1, 2).to(self.dtype)
        with torch.autocast(x.device.type, torch.bfloat16, self.dtype == torch.bfloat16):
            return self.layers(x).float()


class PartsTrunk(Trunk):
    """A trunk for each group of an observation's parts, and a hidden layer on all their features.

    groups: for each trunk, the names of the parts that it reads, concatenated. observations: packed
    rows of bytes (B, n), or a dict of parts, which is already split.
    """

    def __init__(self, space: Box, groups: list[list[str]], trunks: list[Trunk]) -> None:
        super().__init__()
        self.space = space
        self.groups = groups
        self.trunks = nn.ModuleList(trunks)
        num_inputs = sum(trunk.num_features for trunk in trunks)
        self.num_features = trunks[0].num_features
        self.merge = orthogonal(nn.Linear(num_inputs, self.num_features), math.sqrt(2))

    def forward(self, observations: Tensor | dict[str, Tensor]) -> Tensor:
        parts = split(self.space, observations)
        features = [
            trunk(torch.cat([parts[name] for name in names], 1))
            for names, trunk in zip(self.groups, self.trunks, strict=True)
        ]
        return self.merge(torch.cat(features, 1)).relu()


class PixelConv2d(nn.Conv2d):
    """A convolution on pixels 0 to 255 that scales them to [0, 1].

    The weights are scaled instead of the pixels: there are fewer of them.
    """

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

    Espeholt et al. 2018, figure 3 (right), without the LSTM.
    """
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
    make_convolutions: MakeConvolutions, observation_space: Box, config: "Config", size: int
) -> Trunk:
    """Make a trunk of an ImageTrunk for each image and a VectorTrunk for all vectors together.

    Raises ModelMismatch if an image is too small for the convolutions.
    """
    images = images_of(observation_space)
    trunks: list[Trunk] = [
        ImageTrunk(make_convolutions, box.shape, config, size) for box in images.values()
    ]
    if not is_packed(observation_space):
        return trunks[0]
    groups = [[name] for name in images]
    vectors = vectors_of(observation_space)
    if vectors:
        space: Any = flatten_space(Dict(vectors))
        trunks.append(VectorTrunk(space, config, MODELS["mlp"].hidden_size))
        groups.append([*vectors])
    return PartsTrunk(observation_space, groups, trunks)


make_nature_trunk = partial(make_image_trunk, nature)
make_small_nature_trunk = partial(make_image_trunk, partial(nature, last_width=32))
make_impala_trunk = partial(make_image_trunk, impala)
