"""Acting by torch: by which weights, and what is recorded."""

import numpy as np
import torch
from gymnasium import spaces
from torch.nn.utils import parameters_to_vector
from torch.testing import assert_close

from ppo.models.actor import Actor
from tests.models.test_mlp import ACTION_SPACES, make_mlp
from tests.running import make_network


@ACTION_SPACES
def test_the_actor_acts_by_the_weights_that_its_array_had_when_it_was_refreshed(action_space):
    models = [make_mlp(action_space=action_space, seed=seed) for seed in (1, 2)]
    vectors = [parameters_to_vector(model.parameters()).detach().numpy() for model in models]
    observations = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    shared = vectors[0].copy()
    actor = Actor(make_mlp(action_space=action_space), shared)
    noise = actor.draw_noise(np.random.default_rng(0), 50)
    for model, vector in zip(models, vectors, strict=True):
        shared[:] = vector
        actor.refresh()
        shared[:] = 0
        expected, _ = model(torch.from_numpy(observations))
        assert_close(
            torch.from_numpy(actor(observations, noise)),
            expected.sample(torch.from_numpy(noise)).detach(),
        )
        assert_close(torch.from_numpy(actor(observations, None)), expected.mode().detach())


def test_the_actor_records_shared_features_and_overwrites_states() -> None:
    space = spaces.Box(-1, 1, (3,))
    values = {"model": "lstm", "hidden_size": 8, "share_trunk": True}
    model, own = (make_network(space, spaces.Discrete(4), **values) for _ in range(2))
    actor = Actor(own, parameters_to_vector(model.parameters()).detach().numpy())
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    states = np.random.default_rng(1).normal(size=(5, 16)).astype(np.float32)
    with torch.no_grad():
        inputs = (torch.from_numpy(observations), torch.from_numpy(states.copy()))
        _, expected_features, expected_states = model.act(*inputs)
    features = np.zeros((5, 8), np.float32)
    actor(observations, None, states=states, features=features)
    assert_close(torch.from_numpy(features), expected_features)
    assert_close(torch.from_numpy(states), expected_states)


def test_the_actor_chooses_among_what_a_mask_allows() -> None:
    model = make_mlp()
    actor = Actor(make_mlp(), parameters_to_vector(model.parameters()).detach().numpy())
    observations = np.zeros((20, 3), np.float32)
    mask = np.zeros((20, 4), np.bool_)
    mask[:, 2] = True
    noise = actor.draw_noise(np.random.default_rng(0), 20)
    assert (actor(observations, noise, mask) == 2).all()
    assert len(np.unique(actor(observations, noise))) == 4
