"""Histograms of an iteration."""

import numpy as np
import torch

from ppo.extras.loggers.histograms import make_histograms
from tests.running import make_components


def test_histograms_are_of_the_batch_after_its_update() -> None:
    parts = make_components("Counting-v0", num_envs=2, num_steps=16, num_minibatches=2)
    with parts.make_pool() as workers:
        rollout = parts.finish_collect(1, workers.collect(1))
        batch = parts.make_batch(rollout)
        found = make_histograms(parts.learner, rollout, batch, parts.spaces.observations)
        np.testing.assert_allclose(found.values["ratios"], 1, rtol=1e-5)  # nothing is learned yet
        parts.learner.update(batch, 1)
        generator = torch.get_rng_state()
        found = make_histograms(parts.learner, rollout, batch, parts.spaces.observations)
    assert torch.equal(torch.get_rng_state(), generator)
    assert found.image is None
    assert not np.allclose(found.values["ratios"], 1, rtol=1e-5)
    np.testing.assert_array_equal(found.values["returns"], batch["returns"])
    lengths = [episode.episode_length for episode in rollout.info.episodes]
    assert found.values["episode_lengths"].tolist() == lengths
