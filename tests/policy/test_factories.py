"""The model and the actor of a run."""

import torch
from torch.nn.utils import parameters_to_vector

from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.policy.factories import new_model


def weights(seed: int) -> torch.Tensor:
    settings = settings_of(Config(env_name="CartPole-v1", num_workers=0, seed=seed))
    return parameters_to_vector(new_model(settings.config, settings.spaces).parameters())


def test_a_models_weights_depend_on_the_seed_only() -> None:
    first = weights(0)
    torch.rand(3)
    assert torch.equal(first, weights(0))
    assert not torch.equal(first, weights(1))


def test_making_a_model_leaves_torchs_random_stream_as_it_was() -> None:
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    weights(0)
    assert torch.equal(torch.rand(4), expected)
