"""Memory shared by the learner and the workers."""

import numpy as np
import pytest
from gymnasium import spaces

from ppo.algorithm.buffers import rollout_layout
from ppo.algorithm.rollout import Rollout
from ppo.envs.probe import Spaces
from tests.running import make_components, make_network


@pytest.mark.parametrize(
    ("action_space", "actions"),
    [
        (spaces.Discrete(4, start=2), ((5, 3, 1), np.int64)),
        (spaces.Box(-1, 1, (2,)), ((5, 3, 2), np.float32)),
        (spaces.Box(-1, 1, (2, 3), np.float64), ((5, 3, 6), np.float32)),
    ],
    ids=["discrete", "box", "matrix"],
)
def test_layout_is_time_major_with_one_more_observation(action_space, actions):
    observation_space = spaces.Box(0, 255, (2, 7), np.uint8)
    model = make_network(observation_space, action_space)
    both = Spaces(observation_space, action_space, has_masks=False)
    layout = rollout_layout(5, 3, spaces=both, model=model)
    assert layout == {
        "observations": ((6, 3, 2, 7), np.uint8),
        "actions": actions,
        "rewards": ((5, 3), np.float32),
        "terminations": ((5, 3), np.bool_),
        "truncations": ((5, 3), np.bool_),
        "features": ((5, 3, 0), np.float32),
        "states": ((6, 3, 0), np.float32),
        "action_masks": ((6, 3, 0), np.bool_),
        "present": ((6, 0), np.bool_),
    }
    absent = rollout_layout(5, 3, spaces=both._replace(has_absent=True), model=model)
    assert absent == {**layout, "present": ((6, 3), np.bool_)}
    Rollout(**{name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()})


def test_tables_for_workers_are_the_same_memory() -> None:
    shared = make_components("Counting-v0", num_envs=3, num_steps=5).buffers
    shared.shared_rollout["rewards"].array[2, 1] = 7
    assert shared.rollout.rewards[2, 1] == 7
    shared.shared_weights.array[0] = 3
    assert shared.behaviour_weights[0] == 3
    shared.shared_counts.array[2] = 4
    assert shared.episode_counts.tolist() == [0, 0, 4]
