"""Actor-critics by name. Importing ppo.models does not import torch; making a model does."""

import math
import traceback
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from ppo.config import name_of
from ppo.envs.make import Spaces
from ppo.envs.observations import NUMBERS
from ppo.envs.sampler import MakeActor
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import ConfigError, PPOError, reason, suggest
from ppo.extras import NETWORKS
from ppo.imports import import_named, is_path

if TYPE_CHECKING:
    from ppo.models.actor_critic import ActorCritic, Trunk

HIDDEN_SIZES = {"mlp": 64, "cnn": 512, "cnn_small": 512}


def make_trunk(spaces: Spaces, size: Any) -> "Trunk":
    """Make an MLP, or a CNN where there are images. size: as --hidden_size."""
    if spaces.layout.images:
        from ppo.models.cnn import make_image_trunk

        return make_image_trunk(spaces, size)
    from ppo.models.mlp import VectorTrunk

    return VectorTrunk(spaces, size)


def make_model(spaces: Spaces) -> "ActorCritic":
    """Make a run's model with initial weights, which --seed determines, and callbacks' on_model.
    Raises ConfigError if the model cannot read the observations or choose the actions."""
    import torch

    from ppo.models.actor_critic import FeedForward

    config = spaces.config
    name = config.model
    model: Any
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(integer_seed(config.seed, Stream.MODEL))
        if not isinstance(name, str) or is_path(name):
            model = _make_own(spaces)
        elif name in HIDDEN_SIZES:
            model = FeedForward(lambda: make_trunk(spaces, config.hidden_size), spaces)
        elif name in NETWORKS:
            model = resolve_name(NETWORKS[name][0])(spaces)
        else:
            hint = suggest(name, [*HIDDEN_SIZES, *NETWORKS])
            raise ConfigError(f"--model={name} is unknown{hint}")
        for hook in config.hooks:
            hook.on_model(model, spaces)
    return model


def _make_own(spaces: Spaces) -> "ActorCritic":
    import torch

    from ppo.models.actor_critic import ActorCritic

    layout = spaces.layout
    name = spaces.config.model
    make = import_named(name, "model")
    observes = layout.tables[NUMBERS] if len(layout.tables) == 1 else spaces.observations
    rows = {table: torch.zeros(2, *box.shape) for table, box in layout.tables.items()}
    rows |= {x: rows[x].byte() for x in map(layout.table_of, layout.images)}
    observed = layout.named(rows)
    try:
        is_made = isinstance(make, ActorCritic)
        model = deepcopy(make) if is_made else make(observes, spaces.actions, spaces.config)
        if not isinstance(model, ActorCritic):
            raise TypeError("it is not an ActorCritic of ppo.models.actor_critic")
        states = torch.zeros(2, model.state_size)
        inputs = [observed, states] if model.state_size else [observed]
        with torch.no_grad():
            distribution, values = model.eval()(*inputs)
            model.act(observed, states)
        actions = distribution.mode()
        log_probs = distribution.log_prob(actions)
        entropy = distribution.entropy()
        size = math.prod(spaces.actions.shape)
        found = [(*x.shape,) for x in (values, log_probs, entropy, actions)]
        needed = [(2,), (2,), (2,), (2, size)]
        if found != needed:
            raise TypeError(f"values, log_prob, entropy, mode of 2 rows are {found}, not {needed}")
    except PPOError:
        raise
    except Exception as error:
        parts = rows if len(rows) == 1 else observed
        shapes = [f"{part}: {(*x.shape,)}" for part, x in parts.items()]
        what = f"--model={name_of(name)} cannot be used ({reason(error)})"
        sentence = "; ".join([what, *shapes, *layout.hints])
        is_from_within = error.__traceback__ and error.__traceback__.tb_next
        raise ConfigError(sentence, traceback.format_exc() if is_from_within else "") from error
    return model


@dataclass(frozen=True)
class MakeTorchActor:
    """Make actors of a run's model from weights (P,), in any process, on a device."""

    spaces: Spaces
    device: str = "cpu"

    def __call__(self, weights: ndarray) -> Any:
        from ppo.models.actor import Actor

        return Actor(make_model(self.spaces).to(self.device), weights)


def make_actor_of(model: "ActorCritic", spaces: Spaces) -> MakeActor:
    """Return what makes actors from weights (P,): in numpy, so that workers need not import torch,
    if that acts as the model's torch code, which may be edited."""
    from ppo.models.numpy_mlp import NumpyActor, structure_of

    by_torch = MakeTorchActor(spaces)
    structure = structure_of(model)
    if not structure:
        return by_torch
    by_numpy = partial(NumpyActor, structure)
    generator = np.random.default_rng(0)
    num_weights = sum(x.numel() for x in model.parameters())
    weights = 0.3 * generator.standard_normal(num_weights, np.float32)
    observations = 0.3 * generator.standard_normal((64, *spaces.layout.tables[NUMBERS].shape))
    noise = structure.draw_noise(generator, 64)
    actions = by_numpy(weights)(observations, noise)
    is_same = np.allclose(actions, by_torch(weights)(observations, noise), atol=1e-4)
    return by_numpy if is_same else by_torch
