"""Checks: what environments return is finite, and as their spaces say."""

from ppo.extensions import Extension

EXTENSION = Extension(
    flags=("ppo.extras.checks.flags:CheckFlags",),
    inspect="ppo.extras.checks.observations:inspect",
    faults={
        "observation_outside": "has shown an observation outside of its space; it is used as it is"
    },
)
