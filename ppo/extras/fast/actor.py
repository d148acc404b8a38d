"""Act in numpy: a worker process starts without importing torch."""

from functools import partial
from typing import TYPE_CHECKING

from ppo.envs.probe import Spaces
from ppo.extras.fast.mlp import NumpyActor, layout_of

if TYPE_CHECKING:
    from ppo.config.config import Config
    from ppo.models.actor_critic import ActorCritic  # heavy


def make_factory(
    model: "ActorCritic", config: "Config", spaces: Spaces, device: str
) -> partial[NumpyActor] | None:
    """Return what makes actors of a model from weights (P,); None on another device than the CPU,
    or if it has other parts than ppo.extras.fast.mlp supports."""
    layout = layout_of(model) if device == "cpu" else None
    return partial(NumpyActor, layout) if layout else None
