"""Coefficients that change over a run."""

from typing import Any

import pytest

from ppo.config.schedule import scheduled


@pytest.mark.parametrize(
    ("setting", "at_start", "half_way"),
    [
        (0.2, 0.2, 0.2),
        ("linear:0.2", 0.2, 0.1),
        ("adaptive:0.2", 0.2, 0.2),
        (None, None, None),
        (lambda remaining: 3 * remaining, 3.0, 1.5),
    ],
    ids=["constant", "linear", "adaptive", "none", "function"],
)
def test_a_schedule_gives_the_value_at_a_point_of_the_run(
    setting: Any, at_start: float, half_way: float
) -> None:
    assert scheduled(setting, 1.0) == at_start
    assert scheduled(setting, 0.5) == half_way
