"""Flags of a GPU."""

from ppo.config.flags import Flags, flag


class CudaFlags(Flags):
    """GPU."""

    cuda_graphs: bool = flag(
        True,
        "Launch the kernels of a gradient step, and of acting, together as a CUDA graph, for "
        "--model=mlp and the CNNs; not with --squash_actions, nor with extras that change the "
        "network.",
    )
