"""Speed: networks on vectors act in numpy, and mlps learn in it, faster than in torch."""

from ppo.extensions import Extension

EXTENSION = Extension(
    backend="ppo.extras.fast.backend:make_backend",
    actor="ppo.extras.fast.actor:make_factory",
)
