"""Supervision: deadlines for environments, and a process of its own for those not in workers."""

from ppo.extensions import Extension

EXTENSION = Extension(
    flags=("ppo.extras.supervision.flags:TimeoutFlags",),
    play_flags=("ppo.extras.supervision.flags:TimeoutFlags",),
    guard="ppo.extras.supervision.isolation:Isolation",
)
