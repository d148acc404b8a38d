"""Learning curves against calculations by hand."""

from pathlib import Path

import imageio.v3
import numpy as np
import pytest

from ppo.extras.tools.plots import PANELS, curve, draw, group_by_settings
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


@pytest.mark.parametrize("count", [1, 3])
def test_curves_are_drawn_where_there_is_something_to_draw(count: int, tmp_path: Path) -> None:
    """With gaps, without any return, and with metrics that only some runs have."""
    runs = [run_of(f"run-{i}", [1, 2, 3], [np.nan, i, 2 * i], seed=i) for i in range(count)]
    runs[0].metrics[next(iter(PANELS))] = np.arange(3.0)
    draw(runs, tmp_path / "curve.png")
    assert imageio.v3.imread(tmp_path / "curve.png").shape == (840, 1440, 4)
    draw([run_of("empty", [1], [np.nan])], tmp_path / "empty.svg")
    assert b"run-0" not in (tmp_path / "empty.svg").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.png", "empty.svg"]
