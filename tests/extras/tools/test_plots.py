"""Learning curves against calculations by hand."""

from pathlib import Path

import numpy as np

from ppo.extras.tools.plots import curve, group_by_settings
from ppo.run.reader import RunRecord


def run_of(name: str, steps: list[float], returns: list[float], **config: object) -> RunRecord:
    columns = {
        "step": np.array(steps),
        "seconds": np.array(steps) / 10,
        "episode_return_mean": np.array(returns),
    }
    return RunRecord(Path(name), {"env_name": "E", **config}, columns)


def test_runs_that_differ_only_by_their_seed_or_place_are_one_group() -> None:
    runs = [
        run_of("a", [1], [1], seed=1, run_dir="one", num_workers=2),
        run_of("b", [1], [1], seed=2),
        run_of("c", [1], [1], seed=1, gamma=0.9),
    ]
    assert [[run.folder.name for run in group] for group in group_by_settings(runs)] == [
        ["a", "b"],
        ["c"],
    ]


def test_several_curves_are_drawn_as_their_interquartile_mean() -> None:
    lines = [
        (0.0, 1.0),
        (1.0, 2.0),
        (5.0, 3.0),
        (100.0, 400.0),
    ]  # start and slope; the middle two count
    runs = []
    for number, (start, slope) in enumerate(lines):
        steps = np.arange(10 + number, 100.0 - number, 7)
        runs.append(run_of(str(number), [5.0, *steps], [np.nan, *(start + slope * steps)]))
    grid, mean, low, high = curve(runs, "step", "episode_return_mean")
    assert grid[0] == 13  # where the last of them begins
    assert grid[-1] == min(run.metrics["step"][-1] for run in runs)
    np.testing.assert_allclose(mean, 3 + 2.5 * grid)
    assert (low <= mean).all()
    assert (mean <= high).all()
