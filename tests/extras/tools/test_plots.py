"""Learning curves against calculations by hand, and what groups of runs are called."""

from pathlib import Path

import numpy as np
import pytest

from ppo.extras.tools.groups import group_runs, read_groups
from ppo.extras.tools.plots import SvgCharts, curve
from ppo.run.reader import RunRecord
from tests.running import Call


def run_of(name: str, steps: list[float], returns: list[float], **config: object) -> RunRecord:
    columns = {
        "step": np.array(steps),
        "seconds": np.array(steps) / 10,
        "episode_return_mean": np.array(returns),
    }
    return RunRecord(Path(name), {"env_name": "E", **config}, columns)


def write_run(folder: Path, speed: float = 10.0, **config: object) -> None:
    """Write the files of a run of ten iterations, by steps per second."""
    folder.mkdir(parents=True)
    settings = ", ".join(f'"{name}": {value}' for name, value in config.items())
    (folder / "config.json").write_text(f'{{"env_name": "CartPole-v1", {settings}}}')
    rows = [f"{i},{100 * i},{100 * i / speed},{i},{i / 10}" for i in range(1, 11)]
    head = "iteration,step,seconds,episode_return_mean,env/success_rate"
    (folder / "metrics.csv").write_text("\n".join([head, *rows, ""]))


def test_runs_that_differ_only_by_their_seed_or_place_are_one_group() -> None:
    runs = [
        run_of("a", [1], [1], seed=1, run_dir="one", num_workers=2),
        run_of("b", [1], [1], seed=2),
        run_of("c", [1], [1], seed=1, gamma=0.9),
    ]
    found = [(group.label, [run.folder.name for run in group.runs]) for group in group_runs(runs)]
    (label, together), (alone, last) = found
    assert (label, together) == ("E: IQM of 2 seeds, 95 % interval", ["a", "b"])
    assert (alone.rpartition("/")[2], last) == ("c", ["c"])


def test_groups_are_named_by_what_differs_between_their_settings() -> None:
    rates = [(rate, seed) for rate in (0.1, 0.2) for seed in (1, 2)]
    runs = [run_of(f"{x}", [1], [1], seed=x[1], learning_rate=x[0], gamma=1) for x in rates]
    assert [group.label for group in group_runs(runs)] == [
        "learning_rate=0.1: IQM of 2 seeds, 95 % interval",
        "learning_rate=0.2: IQM of 2 seeds, 95 % interval",
    ]
    names = [f"setting_{i}" for i in range(9)]  # of which only the last one tells two apart
    many = [
        run_of(f"{i}-{seed}", [1], [1], seed=seed, **dict.fromkeys(names, i > 0), last=i)
        for i in range(3)
        for seed in (1, 2)
    ]
    labels = [group.label for group in group_runs(many)]
    assert len({*labels}) == 3
    alike = [run_of(f"{place}/x/run", [1], [1], seed=i) for i, place in enumerate("ab")]
    apart = [one._replace(config={**one.config, "gamma": i}) for i, one in enumerate(alike)]
    assert [group.label for group in group_runs(apart)] == ["a/x/run", "b/x/run"]


def test_a_folder_of_seeds_is_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        write_run(Path("runs", "slow", f"s{seed}"), seed=seed)
        write_run(Path("runs", "quick", f"s{seed}"), seed=seed, learning_rate=0.1)
        write_run(Path("runs", "again", f"s{seed}"), seed=seed)
    (Path("runs", "slow", "s3")).mkdir()
    Path("runs", "slow", "s3", "metrics.csv").write_text("iteration\n")  # not one iteration yet
    Path("runs", "slow", "s3", "config.json").write_text('{"env_name": "CartPole-v1"}')
    groups = read_groups(["slow", "runs/quick", "again", "runs/slow/s1"])
    assert [len(group.runs) for group in groups] == [3, 3, 3]
    assert [group.label for group in groups] == [
        "slow: IQM of 3 seeds, 95 % interval",
        "quick, learning_rate=0.1: IQM of 3 seeds, 95 % interval",
        "again: IQM of 3 seeds, 95 % interval",
    ]
    code, out, err = call("plot", "slow", "runs/quick", "--metric=success_rate")
    assert (code, out) == (0, "picture: curves.png\n")
    assert "warning: cannot read the run in runs/slow/s3" in err.splitlines()[-1]
    assert call("report", "slow")[:2] == (0, "page: runs/slow/report.html\n")
    assert "runs</th><th>return in evaluation" in Path("runs/slow/report.html").read_text()
    Path("empty").mkdir()
    code, _, err = call("plot", "empty", "--output=other.png")
    assert (code, "empty/config.json is missing" in err) == (2, True)


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


def test_over_seconds_slow_and_fast_runs_count_to_their_ends() -> None:
    runs = [run_of(str(i), [10.0, 20.0, 30.0], [1.0, 2.0, 3.0]) for i in range(2)]
    runs[1].metrics["seconds"] *= 100  # it begins when the first one has ended
    seconds, mean, _, _ = curve(runs, "seconds", "episode_return_mean")
    np.testing.assert_allclose(seconds[[0, -1]], [50.5, 151.5])
    np.testing.assert_allclose(mean, np.linspace(1, 3, len(mean)))
    svg = SvgCharts(9, 4).draw(group_runs(runs[:1]), "seconds", "episode_return_mean")
    assert "1.5</text>" in svg
    slower = runs[1]._replace(config={"env_name": "E", "gamma": 0.5})
    both = SvgCharts(9, 4).draw(group_runs([runs[0], slower]), "seconds", "episode_return_mean")
    assert "10</text>" in both  # on a logarithmic scale, which has room for both
    assert "100</text>" in both
