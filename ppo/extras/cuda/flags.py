"""Flags of a GPU."""

from ppo.config.flags import Flags, flag


class CudaFlags(Flags):
    """GPU."""

    cuda_graphs: bool = flag(
        True,
        "Launch the kernels of a gradient step, and of acting, together as a CUDA graph, where the "
        "network is a feed-forward one of the trainer's own.",
    )
