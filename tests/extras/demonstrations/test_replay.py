"""Which actions of demonstrations their masks allow."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ppo.envs.spaces import action_converter, mask_converter
from ppo.extras.demonstrations.replay import are_allowed
from tests.envs.test_spaces import CHOICES, allow, draw, head_of, is_allowed, nested


@settings(deadline=None, max_examples=40)
@given(nested(CHOICES), st.integers(0, 99))
def test_which_actions_a_mask_allows(space: Any, seed: int) -> None:
    allowed = allow(space, np.random.default_rng(seed))
    mask = mask_converter(space)(allowed)
    drawn = draw(head_of(space), 32)
    actions = action_converter(space)(drawn)
    wanted = [is_allowed(space, allowed, action) for action in actions]
    found = are_allowed(space, drawn, np.tile(mask, (32, 1)))
    assert found.tolist() == wanted
