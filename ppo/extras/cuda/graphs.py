"""Capture computations of a fixed shape as CUDA graphs."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import nn

from ppo.config.config import Config
from ppo.extras.cuda.flags import CudaFlags
from ppo.models.actor_critic import FeedForward, Trunk
from ppo.models.distributions import CategoricalHead, GaussianHead, PolicyHead, ProductHead

WARM_UP = 3  # runs before a capture, in which libraries choose kernels and take memory
T = TypeVar("T")


class Captured(NamedTuple, Generic[T]):
    """A graph, and what it writes its result to each time that it is replayed."""

    graph: torch.cuda.CUDAGraph
    result: T


def capture(compute: Callable[[], T], device: torch.device) -> Captured[T]:
    """Capture what a function launches on a device, which must not depend on values there.

    The function is called several times; its inputs and results are tensors that stay where they
    are."""
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = compute()
    return Captured(graph, result)


def can_capture(model: nn.Module, config: Config, device: str) -> bool:
    """Return whether acting and gradient steps of a model may be captured on a device: its kernels
    depend on shapes only, and need nothing from the CPU."""
    if not device.startswith("cuda") or not CudaFlags.of(config).cuda_graphs:
        return False
    from ppo.models.cnn import ImageTrunk, PartsTrunk  # for images only, as is most of a GPU's use
    from ppo.models.mlp import VectorTrunk

    known = {VectorTrunk, ImageTrunk, PartsTrunk, CategoricalHead, GaussianHead, ProductHead}
    parts = {type(part) for part in model.modules() if isinstance(part, (Trunk, PolicyHead))}
    is_plain = type(model) is FeedForward and type(model.value_head) is nn.Linear
    return is_plain and parts <= known and not config.squash_actions
