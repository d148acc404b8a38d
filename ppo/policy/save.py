"""Save a policy by itself, in a file like a checkpoint, which ppo.policy.load reads."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ppo.config.config import settings_to_keep
from ppo.envs.saved_spaces import save_spaces
from ppo.models.actor_critic import named_tensors
from ppo.policy.factories import empty_model
from ppo.run.checkpoint import copy_state, save
from ppo.system.state_dict import State, add_prefix

if TYPE_CHECKING:
    from ppo.policy.policy import Policy


def save_policy(policy: "Policy", path: Path) -> None:
    """Write a policy's weights, observation statistics, settings, spaces and env_attributes.

    Raises OSError if the file cannot be written, ValueError for numbers that are not finite."""
    state: State = {
        "config": settings_to_keep(policy.config.__getstate__()),
        "spaces": save_spaces(policy.spaces),
        "env_attributes": policy.env_attributes,
        **add_prefix("normalize_observation", vars(policy.normalize.statistics)),
        **add_prefix("model", model_tensors(policy)),
    }
    save(path, copy_state(state))


def model_tensors(policy: "Policy") -> State:
    """Return the model's parameters and persistent buffers, by name."""
    wanted = named_tensors(empty_model(policy.config, policy.spaces))
    parts = torch.from_numpy(policy.weights).split([x.numel() for x in wanted.values()])
    return {
        name: part.view_as(tensor).to(tensor.dtype)
        for (name, tensor), part in zip(wanted.items(), parts, strict=True)
    }
