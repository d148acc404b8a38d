"""Speed on a GPU: gradient steps and acting as CUDA graphs, whose kernels are launched together."""

from ppo.extensions import Extension

HERE = "ppo.extras.cuda"

EXTENSION = Extension(
    flags=(f"{HERE}.flags:CudaFlags",),
    backend=f"{HERE}.backend:make_backend",
    actor=f"{HERE}.actor:make_factory",
)
