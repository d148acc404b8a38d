"""The first look at an environment."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.probe import Spaces, probe_all
from tests.running import environment_flags

NAME = "tests.misbehaving:Misbehaving"


def test_spaces_and_masks_are_found() -> None:
    found = probe_all(environment_flags("tests.environments:Masked-v0"))
    assert found.has_masks
    found = probe_all(environment_flags("CartPole-v1"))
    assert not found.has_masks
    assert found.observations.shape == (4,)
    assert found.actions.n == 2
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("where", "what", "said"),
    [
        ("step", "float64", "float64 (4,) [0.5, 0.5, 0.5, 0.5], not float32 (4,), to which"),
        ("reset", "list", "[0.5, 0.5, 0.5, 0.5], not float32 (4,), to which it is converted"),
        ("step", "reward", "its reward is int64 (1,) [0]: return a number"),
        ("close", "raise", "it raised RuntimeError as it was closed: a wheel came off"),
    ],
)
def test_the_author_is_told_of_sloppiness_that_changes_nothing(
    where: str, what: str, said: str
) -> None:
    found = probe_all(environment_flags(NAME, env_kwargs={"where": where, "what": what}))
    (warning,) = found.warnings
    assert warning.startswith(f"environment {NAME}: ")
    assert said in warning or (what == "reward" and "its reward is int64 (1,) [" in warning)


@pytest.mark.parametrize(
    ("where", "what", "said"),
    [
        ("step", "shape", "its observation is float32 "),
        ("step", "reward_nan", "its reward is nan, not one finite number"),
    ],
)
def test_what_no_policy_can_use_is_named_before_a_run_begins(
    where: str, what: str, said: str
) -> None:
    with pytest.raises(EnvironmentUnavailable, match=f"^environment {NAME}: {said}"):
        probe_all(environment_flags(NAME, env_kwargs={"where": where, "what": what}))


def test_spaces_are_alike_where_one_policy_fits_both() -> None:
    first = Spaces(Box(-1, 1, (3,)), Box(-1, 1, (2,)), False)
    unbounded = Box(-np.inf, np.inf, (3,), np.float64)
    assert first.is_like(first._replace(observations=unbounded))
    assert first.is_like(first._replace(actions=Box(-1, 1, (2,), np.float64)))
    for other in (
        first._replace(observations=Box(-1, 1, (4,))),
        first._replace(observations=Box(0, 255, (3,), np.uint8)),
        first._replace(actions=Box(-2, 2, (2,))),
        first._replace(actions=Discrete(2)),
        first._replace(has_masks=True),
    ):
        assert not first.is_like(other)
