"""The model and the actor of a run."""

import subprocess
import sys

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector

from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.models.actor import Actor
from ppo.models.numpy_mlp import NumpyActor, layout_of
from ppo.policy.build import ActorFactory, new_model
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


def test_a_layout_alone_decides_who_acts() -> None:
    settings = settings_of(Config(env_name="CartPole-v1", num_workers=0))
    config, spaces = settings.config, settings.spaces
    model = new_model(config, spaces)
    vector = parameters_to_vector(model.parameters()).detach().numpy()
    by_numpy = ActorFactory(config, spaces, layout_of(model))(vector)
    by_torch = ActorFactory(config, spaces, layout=None)(vector)
    assert isinstance(by_numpy, NumpyActor)
    assert isinstance(by_torch, Actor)
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_array_equal(by_numpy(observations, None), by_torch(observations, None))


def test_acting_by_a_layout_imports_no_torch() -> None:
    code = """
import sys
import numpy as np
from ppo.models.numpy_mlp import Layout
from ppo.policy.build import ActorFactory
sizes = {"policy_trunk.layers.0": (2, 3), "policy_head.logits": (4, 2), "value_head": (1, 2)}
shapes = {}
for name, (out, width) in sizes.items():
    shapes |= {f"{name}.weight": (out, width), f"{name}.bias": (out,)}
weights = np.zeros(sum(int(np.prod(shape)) for shape in shapes.values()), np.float32)
actor = ActorFactory(None, None, Layout(shapes, "tanh", 4, None, "", 0))(weights)
print(actor(np.zeros((1, 3), np.float32), None).tolist(), "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[[0]] False\n"
