"""Actor-critics by name.

Import it as ppo.models. Importing it does not import torch; making a model does."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from ppo.envs.make import Spaces
from ppo.envs.observations import NUMBERS
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import ConfigError, PPOError, reason, suggest
from ppo.imports import import_named, is_path

if TYPE_CHECKING:
    from ppo.callbacks import Callback
    from ppo.config import Config
    from ppo.models.actor_critic import ActorCritic, Trunk

Make = Callable[[Spaces, "Config"], "ActorCritic"]


def make_mlp(spaces: Spaces, config: "Config") -> "ActorCritic":
    """Make an MLP for policy and value each, or one that both share."""
    from ppo.models.actor_critic import FeedForward

    make_trunk = partial(_vector_trunk, spaces, config, config.hidden_size)
    return FeedForward(make_trunk, spaces.actions, config)


def make_cnn(
    spaces: Spaces, config: "Config", kind: str = "nature", **options: int
) -> "ActorCritic":
    """Make a CNN: "nature" or "impala"."""
    from ppo.models.actor_critic import FeedForward

    make_trunk = partial(_image_trunk, spaces, config, int(config.hidden_size), kind, **options)
    return FeedForward(make_trunk, spaces.actions, config)


def make_recurrent(spaces: Spaces, config: "Config", kind: str) -> "ActorCritic":
    """Make an LSTM or a GRU on the features of an MLP or, where there are images, a CNN."""
    from ppo.models.recurrent import Recurrent, RecurrentTrunk

    def make_trunk() -> RecurrentTrunk:
        if spaces.layout.images:
            encoder = _image_trunk(spaces, config, HIDDEN_SIZES["cnn"])
        else:
            encoder = _vector_trunk(spaces, config, HIDDEN_SIZES["mlp"])
        return RecurrentTrunk(kind, encoder, int(config.hidden_size))

    return Recurrent(make_trunk, spaces.actions, config)


def _vector_trunk(spaces: Spaces, config: "Config", size: Any) -> "Trunk":
    from ppo.models.mlp import VectorTrunk, layer_sizes

    sizes = layer_sizes(size, config.num_layers)
    return VectorTrunk(spaces.layout.tables[NUMBERS], config.activation, sizes)


def _image_trunk(
    spaces: Spaces, config: "Config", size: int, kind: str = "nature", **options: int
) -> "Trunk":
    from ppo.models import cnn

    convolutions = {"nature": cnn.nature, "impala": cnn.impala}[kind]
    return cnn.make_image_trunk(partial(convolutions, **options), spaces.layout, config, size)


MODELS: dict[str, Make] = {
    "mlp": make_mlp,
    "cnn": make_cnn,
    "cnn_small": partial(make_cnn, last_width=32),
    "impala": partial(make_cnn, kind="impala"),
    "lstm": partial(make_recurrent, kind="lstm"),
    "gru": partial(make_recurrent, kind="gru"),
}
RECURRENT = ("lstm", "gru")
HIDDEN_SIZES = {"mlp": 64, "cnn": 512, "cnn_small": 512, "impala": 256, "lstm": 128, "gru": 128}


def find_model(name: str) -> Make:
    """Return the function that makes a network, by its name. Raises ConfigError for an unknown
    one."""
    if name in MODELS:
        return MODELS[name]
    raise ConfigError(f"--model={name} is unknown{suggest(name, MODELS)}")


def make_model(config: "Config", spaces: Spaces, hooks: Sequence["Callback"] = ()) -> "ActorCritic":
    """Make a run's model with its initial weights, which config.seed determines.

    hooks: callbacks that override on_model. torch's random state does not change. Raises
    ConfigError if the model cannot read the observations or choose the actions."""
    import torch

    from ppo.models.actor_critic import ActorCritic

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(integer_seed(config.seed, Stream.MODEL))
        own = config.model
        if isinstance(own, str) and is_path(own):
            own = import_named(own, "model")
        if isinstance(own, str):
            model = find_model(own)(spaces, config)
        else:
            model = _own_model(own, config, spaces)
        for hook in hooks:
            hook.on_model(model)
    if not isinstance(model, ActorCritic):
        raise ConfigError(f"--model={config.model} is no ppo.models.actor_critic.ActorCritic")
    if config.squash_actions and model.policy_head.action_size and not _is_continuous(model):
        raise ConfigError(
            f"--squash_actions is for continuous actions, these are {spaces.actions}: leave it out"
        )
    return model


def _own_model(own: Any, config: "Config", spaces: Spaces) -> "ActorCritic":
    """Make a model of the user's class, and try it on two observations."""
    import torch

    name = getattr(own, "__name__", own)
    layout = spaces.layout
    observes = layout.tables[NUMBERS] if len(layout.tables) == 1 else spaces.observations
    try:
        model = own(observes, spaces.actions, config)
        rows = {
            key: torch.from_numpy(np.zeros((2, *box.shape), box.dtype))
            for key, box in layout.tables.items()
        }
        if layout.has_numbers:
            rows[NUMBERS] = rows[NUMBERS].float()
        states = (torch.zeros(2, model.state_size),) if model.state_size else ()
        with torch.no_grad():
            distribution, values = model.eval()(layout.named(rows), *states)
        log_probs = distribution.log_prob(distribution.mode())
        if not values.shape == log_probs.shape == distribution.entropy().shape == (2,):
            raise TypeError("values, and log_prob and entropy of the distribution, must be (B,)")
    except PPOError:
        raise
    except Exception as error:
        raise ConfigError(f"--model={name} cannot be used ({reason(error)})") from error
    return model


def _is_continuous(model: "ActorCritic") -> bool:
    return model.policy_head.action_dtype is np.float32


class MakeTorchActor:
    """Make actors of a run's model from weights (P,), in any process, on a device."""

    def __init__(
        self, config: "Config", spaces: Spaces, hooks: Sequence["Callback"], device: str = "cpu"
    ) -> None:
        self.config = config
        self.spaces = spaces
        self.hooks = hooks
        self.device = device

    def __call__(self, weights: ndarray) -> Any:
        from ppo.models.actor import Actor

        model = make_model(self.config, self.spaces, self.hooks)
        return Actor(model.to(self.device), weights)


def make_actor_of(
    model: "ActorCritic", config: "Config", spaces: Spaces, hooks: Sequence["Callback"] = ()
) -> Callable[[ndarray], Any]:
    """Return what makes actors of a model from weights (P,): in numpy, so that workers start
    without importing torch, if that can compute the same."""
    from ppo.models.numpy_mlp import NumpyActor, structure_of

    by_torch = MakeTorchActor(config, spaces, hooks)
    if structure := structure_of(model):
        by_numpy = partial(NumpyActor, structure)
        num_weights = sum(math.prod(shape) for shape in structure.shapes.values())
        if _act_alike(by_numpy(_noise(num_weights)), by_torch(_noise(num_weights)), spaces):
            return by_numpy
    return by_torch


def _noise(*shape: int) -> ndarray:
    return 0.3 * np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _act_alike(actor: Any, other: Any, spaces: Spaces) -> bool:
    """Return whether two actors do the same: a network that is edited must not be ignored."""
    observations = _noise(64, *spaces.layout.tables[NUMBERS].shape)
    noise = actor.draw_noise(np.random.default_rng(1), len(observations))
    actions, others = actor(observations, noise), other(observations, noise)
    return bool(np.allclose(actions, others, atol=1e-4))
