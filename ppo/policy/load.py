"""Load a policy from a checkpoint."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch.nn.utils import parameters_to_vector

from ppo.envs.first_look import Spaces, look
from ppo.errors import CheckpointError
from ppo.models import make_actor
from ppo.models.numpy_mlp import layout_of
from ppo.policy.build import new_model, new_normalizer
from ppo.policy.policy import Policy
from ppo.run.checkpoint import load, trusted_settings
from ppo.system.state_dict import select_prefix


def load_policy(
    path: str | Path,
    env_name: str | None = None,
    model: str | None = None,
    *,
    precision: str | None = None,
    find_spaces: Callable[[Any], Spaces] = look,
) -> Policy:
    """Load the policy of a checkpoint.

    env_name, model: repeat them if they are import paths, which a file alone is not trusted with;
    precision: float32 or bfloat16 instead of training's; find_spaces: looks at the environment, by
    default in this process. Raises CheckpointError if the file is
    damaged, or of another environment or model."""
    path = Path(path)
    state = load(path)
    repeated = {"env_name": env_name, "model": model}
    config = SimpleNamespace(**trusted_settings(path, state, repeated, names=tuple(repeated)))
    config.precision = precision or config.precision
    spaces = find_spaces(config)
    network = new_model(config, spaces)
    normalize = new_normalizer(config, spaces)
    parameters = select_prefix("model", state)
    statistics = select_prefix("normalize_observation", state)
    try:
        if parameters.keys() != dict(network.named_parameters()).keys():
            raise KeyError("its parameters have other names")
        network.load_state_dict(parameters, strict=False)  # a shared trunk has two names
        normalize.load_state_dict({name: tensor.numpy() for name, tensor in statistics.items()})
    except (KeyError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path} is of another network or environment: {error}") from error
    weights = parameters_to_vector(network.parameters()).detach().numpy()
    actor = partial(make_actor, partial(new_model, config, spaces, to_act=True), layout_of(network))
    return Policy(config, spaces, weights, actor, normalize)
