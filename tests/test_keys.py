"""Networks that read some parts of observations only."""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from ppo import load_policy
from ppo.errors import ConfigError
from ppo.extras.keys import Keys
from tests.running import assert_same_state, disturb, make_network, make_spaces, train

NUMBERS = Dict(arm=Dict(angle=Box(-1, 1, (2,)), speed=Box(-1, 1, (1,))), armed=Discrete(2))
CAMERA = Dict(camera=Box(0, 255, (40, 40), np.uint8), arm=Box(-1, 1, (2,)))
CASES = {  # flags, and which parts policy and value read
    "policy": (NUMBERS, {}, "arm", None, "arm.angle arm.speed", "arm.angle arm.speed armed"),
    "value": (NUMBERS, {}, "armed", "arm.angle", "armed", "arm.angle"),
    "shared": (NUMBERS, {"share_trunk": True}, "armed", "armed", "armed", "armed"),
    "stack": (NUMBERS, {"frame_stack": 3}, "arm.speed", "arm", "arm.speed", "arm.angle arm.speed"),
    "no image": (CAMERA, {}, "arm", None, "arm", "arm camera"),
    "image": (CAMERA, {}, "camera", "arm", "camera", "arm"),
    "lstm": (CAMERA, {"model": "lstm"}, "arm", None, "arm", "arm"),
}


class Parts(gymnasium.Env):
    action_space = Discrete(2)

    def __init__(self):
        self.observation_space = deepcopy(NUMBERS)  # with random numbers of its own

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 5, False, {}


def outputs_of(model, layout, tables):
    """Return probabilities and values of observations."""
    state = [torch.zeros(2, model.state_size)] if model.state_size else []
    with torch.no_grad():
        distribution, values = model(layout.named(tables), *state)
    return distribution.log_probs, values


@pytest.mark.parametrize("case", CASES)
def test_outputs_depend_on_the_parts_that_are_read(case):
    observes, flags, policy, value, *read = CASES[case]
    keys = Keys(policy, value)
    flags = {"hidden_size": 16, "screen_size": 40, "hooks": (keys,), **flags}
    if observes is NUMBERS:
        del flags["screen_size"]
    spaces = make_spaces(observes, **flags)
    layout = spaces.layout
    model = disturb(make_network(observes, **flags))
    tables = {name: torch.ones(2, *x.shape) for name, x in layout.tables.items()}
    before = outputs_of(model, layout, tables)
    places = {name: ("observations", columns) for name, columns in layout.columns.items()}
    places |= {part.name: (layout.table_of(part), slice(None)) for part in layout.images}
    for name, (table, columns) in places.items():
        changed = {x: y.clone() for x, y in tables.items()}
        rows = changed[table]
        rows = rows.unflatten(1, (layout.num_vectors, -1)) if table == "observations" else rows
        rows[..., columns] += 50 if name == "camera" else 1  # in all stacked ones
        after = outputs_of(model, layout, changed)
        for one, other, names in zip(before, after, read, strict=True):
            assert (one == other).all() != (name in names.split())


def test_a_run_is_resumed_and_loaded_by_its_flags(tmp_path):
    flags = {"policy_keys": "arm.speed", "num_workers": 1}
    train(Parts, tmp_path / "whole", 2, **flags)
    train(Parts, tmp_path / "run", 1, **flags)
    train(Parts, tmp_path / "run", 2)
    assert_same_state(tmp_path / "run", tmp_path / "whole")
    policy = load_policy(tmp_path / "run", Parts)
    assert policy.weights.size == sum(x.numel() for x in policy.actor.model.parameters())
    assert policy.predict(NUMBERS.sample()) in (0, 1)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"policy_keys": "ar"}, "policy_keys=ar"),
        ({"value_keys": "arm,"}, "value_keys="),
        ({"model": "lstm", "value_keys": "arm"}, "value_keys=arm"),
        ({"env_name": "CartPole-v1", "policy_keys": "pole"}, "policy_keys=pole"),
    ],
)
def test_keys_that_cannot_be_are_refused(flags, named, tmp_path):
    with pytest.raises(ConfigError, match=named):
        train(flags.pop("env_name", Parts), tmp_path, 1, **flags)
