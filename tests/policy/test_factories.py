"""The model and the actor of a run."""

import subprocess
import sys

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector

from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.extras.fast.mlp import NumpyActor
from ppo.models.actor import Actor
from ppo.policy.factories import ActorFactory, actor_factory, new_model
from tests.running import ROOT


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


def test_what_can_act_in_numpy_does() -> None:
    settings = settings_of(Config(env_name="CartPole-v1", num_workers=0))
    config, spaces = settings.config, settings.spaces
    model = new_model(config, spaces)
    vector = parameters_to_vector(model.parameters()).detach().numpy()
    by_numpy = actor_factory(model, config, spaces)(vector)
    by_torch = ActorFactory(config, spaces)(vector)
    assert isinstance(by_numpy, NumpyActor)
    assert isinstance(by_torch, Actor)
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_array_equal(by_numpy(observations, None), by_torch(observations, None))


def test_acting_by_a_layout_imports_no_torch() -> None:
    code = """
import sys
import numpy as np
from ppo.extras.fast.mlp import Layout, NumpyActor
sizes = {"policy_trunk.layers.0": (2, 3), "policy_head.logits": (4, 2), "value_head": (1, 2)}
shapes = {}
for name, (out, width) in sizes.items():
    shapes |= {f"{name}.weight": (out, width), f"{name}.bias": (out,)}
weights = np.zeros(sum(int(np.prod(shape)) for shape in shapes.values()), np.float32)
actor = NumpyActor(Layout(shapes, "tanh", 4, None, "", 0), weights)
print(actor(np.zeros((1, 3), np.float32), None).tolist(), "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[[0]] False\n"
