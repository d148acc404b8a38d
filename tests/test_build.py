"""The model and the normaliser of a run."""

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector

from ppo.config.config import Config
from ppo.config.resolve import resolve
from ppo.policy.build import new_model, new_normalizer
from tests.running import make_components


def weights(seed: int) -> torch.Tensor:
    config, spaces = resolve(Config(env_name="CartPole-v1", num_workers=0, seed=seed))
    return parameters_to_vector(new_model(config, spaces).parameters())


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


def test_pixels_are_not_normalised_and_numbers_beside_them_are() -> None:
    parts = make_components("Camera", screen_size=36, frame_stack=1, normalize_observations=True)
    normalize = new_normalizer(parts.config, parts.spaces)
    size = parts.spaces.observations.shape[0]
    assert size == 36 * 36 + 4
    observations = np.random.default_rng(0).uniform(50, 200, (3, 2, size)).astype(np.float32)
    normalize.update(observations, lambda moments: moments)
    shown = normalize(observations)
    np.testing.assert_array_equal(shown[..., :-4], observations[..., :-4])
    np.testing.assert_allclose(shown[..., -4:].mean((0, 1)), 0, atol=1e-3)
