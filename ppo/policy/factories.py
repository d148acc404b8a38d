"""Make what training and evaluation share: the model, actors, and the observation normaliser."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.envs.normalize import NormalizeObservation
from ppo.envs.probe import Spaces
from ppo.envs.seeding import Stream, integer_seed
from ppo.extensions import functions_of
from ppo.models import make_model
from ppo.models.observation_parts import images_of, is_packed, parts_of, vectors_of

if TYPE_CHECKING:
    from ppo.config.config import Config
    from ppo.models.actor import Actor  # heavy, as the next
    from ppo.models.actor_critic import ActorCritic


def new_model(config: "Config", spaces: Spaces, to_act: bool = False) -> "ActorCritic":
    """Make a run's model with its initial weights, which config.seed determines.

    torch's random state does not change. to_act: for acting on the CPU, in float32 if it does not
    support bfloat16, whatever the learner's device is. Raises ModelMismatch as make_model does."""
    # Imported here, since workers import this module even if they act without torch.
    import torch

    from ppo.system.hardware import has_bfloat16

    if to_act and not has_bfloat16("cpu"):
        config = copy(config)
        vars(config).update(precision="float32")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(integer_seed(config.seed, Stream.MODEL))
        return make_model(config, spaces.observations, spaces.actions)


def empty_model(config: "Config", spaces: Spaces) -> "ActorCritic":
    """Make a run's model for its names and shapes only: on the meta device, where it takes no
    memory, but for a user's own class on the CPU. Raises ModelMismatch as make_model does."""
    import torch  # here for the same reason as above

    with torch.device("cpu" if ":" in config.model else "meta"):
        return new_model(config, spaces)


@dataclass(frozen=True)
class ActorFactory:
    """Make actors of a run's model from weights, in any process. config: the run's, resolved."""

    config: "Config"
    spaces: Spaces
    device: str = "cpu"

    def __call__(self, weights: ndarray) -> "Actor":
        """Return an actor with weights (P,)."""
        from ppo.models.actor import Actor  # imports torch

        return Actor(self.make_model(), weights)

    def make_model(self) -> "ActorCritic":
        """Make the model of an actor. Raises ModelMismatch as make_model does."""
        model = new_model(self.config, self.spaces, to_act=self.device == "cpu")
        return model.to(self.device)


def actor_factory(
    model: "ActorCritic", config: "Config", spaces: Spaces, device: str = "cpu"
) -> Callable[[ndarray], Any]:
    """Return what makes actors of a model on a device: an extension's, or an ActorFactory."""
    made = (make(model, config, spaces, device) for make in functions_of("actor"))
    return next(filter(None, made), ActorFactory(config, spaces, device))


def new_normalizer(config: "Config", spaces: Spaces) -> NormalizeObservation:
    """Make a run's observation normaliser, with initial statistics, for all parts but images."""
    space = spaces.observations
    if len(parts_of(space)) == 1:
        return NormalizeObservation(space.shape, config.normalize_observations, dtype=space.dtype)
    names = normalized_parts(config, space)
    vectors = vectors_of(space)
    is_scaled = [np.full(box.shape, name in names) for name, box in vectors.items()]
    columns = np.concatenate([np.ones(0, np.bool_), *is_scaled])
    dtype = np.result_type(np.float32, *(box.dtype for box in vectors.values()))
    return NormalizeObservation(
        columns.shape, config.normalize_observations, columns, is_packed(space), dtype
    )


def normalized_parts(config: "Config", space: Box) -> list[str]:
    """Return the names of the parts of observations that are standardised."""
    names = [*vectors_of(space)]
    for choose in functions_of("standardized"):
        names = choose(config, names)
    return names if config.normalize_observations else []


def describe_observations(config: "Config", space: Box) -> list[str]:
    """Return lines for the user: how each part of an observation is preprocessed, and for images
    also frame skip and stack, model, precision, device and torch's threads."""
    parts = []
    standardised = normalized_parts(config, space)
    for name, treatment in getattr(space, "treatment", {}).items():
        label = "" if name == "observation" else f"{name}: "
        ending = ", standardised" if name in standardised else ""
        parts.append(label + treatment + ending)
    notes = [f"observations: {'; '.join(parts)}"] if parts else []
    if not images_of(space):
        return notes
    sticky = "" if config.sticky_actions == "auto" else f", sticky actions {config.sticky_actions}"
    import torch  # here for the same reason as above

    return [
        *notes,
        f"images: frame skip {config.frame_skip}{sticky}, frame stack {config.frame_stack}",
        f"learner: {config.model} in {config.precision} on {config.device}, "
        f"threads: {torch.get_num_threads()}",
    ]
