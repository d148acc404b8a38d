"""What a run has of demonstrations: a clone to begin with."""

from ppo.components import Components
from ppo.extras.demonstrations.flags import CloningFlags


def prepare(parts: Components) -> list[str]:
    """Fit the model of a new run to --demonstrations, if they are given; return notes for the user.
    Raises as clone."""
    if not CloningFlags.of(parts.config).demonstrations:
        return []
    from ppo.extras.demonstrations.cloning import clone

    return [clone(parts)]
