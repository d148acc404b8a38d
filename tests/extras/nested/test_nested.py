"""Parts of observations that are normalised, chosen by their keys."""

import numpy as np
import pytest
import torch

from ppo.models.observation_parts import split
from ppo.policy.factories import normalized_parts
from tests.envs.test_observations import THREE
from tests.running import make_components


def test_the_numbers_within_a_dict_are_normalised_by_its_name() -> None:
    parts = make_components("Lights", **THREE, normalize_observations=True, normalize_keys="arm")
    assert normalized_parts(parts.config, parts.spaces.observations) == ["arm.position"]


@pytest.mark.parametrize("keys", [None, "distance", "switch"])
def test_only_the_keys_asked_for_are_normalised_and_pixels_never(keys: str | None) -> None:
    parts = make_components(
        "Camera", **THREE, normalize_observations=True, normalize_keys=keys, num_envs=2
    )
    with parts.make_pool() as workers:
        rollout = parts.finish_collect(1, workers.collect(1))
    parts.update_statistics(rollout)
    rows = rollout.observations.reshape(-1, rollout.observations.shape[-1])
    assert rows.dtype == np.uint8
    space = parts.spaces.observations
    before = split(space, torch.from_numpy(rows))
    after = split(space, torch.from_numpy(parts.normalize_observation(rows)))
    assert torch.equal(before["picture"], after["picture"])
    for name in ("distance", "switch"):
        numbers = before[name].double()
        if keys in (None, name):
            deviation = numbers[: -parts.num_envs].std(0, unbiased=False)
            numbers = (numbers - numbers[: -parts.num_envs].mean(0)) / deviation
        np.testing.assert_allclose(after[name], numbers, atol=2e-2)
