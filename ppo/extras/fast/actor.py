"""Act in numpy: a worker process starts without importing torch."""

from functools import partial
from typing import Any

from ppo.envs.probe import Spaces
from ppo.extras.fast.mlp import NumpyActor, layout_of


def make_factory(model, config: Any, spaces: Spaces) -> partial[NumpyActor] | None:
    """Return what makes actors of a model from weights (P,); None if it has other parts than
    ppo.extras.fast.mlp supports."""
    layout = layout_of(model)
    return partial(NumpyActor, layout) if layout else None
