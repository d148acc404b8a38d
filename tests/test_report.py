"""Runs, plot and report: what is read from folders whose content is known, and what is shown."""

import fcntl
import json
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from ppo.cli import main
from ppo.errors import ConfigError
from ppo.extras import curves, plot, report
from ppo.extras.curves import POINTS, Record, _ticks, curve, grouped, read_runs
from tests.running import assert_same_state, python, train
from tests.worlds import Constant

CONFIG = {"env_name": "A<b>-v1", "num_envs": 2, "num_steps": 5, "total_steps": 45, "seed": 0}
ODD = ["1e308", "-inf", "nan", "", "0", "5e-324", "-1e100", str(2**53 - 1)]


def write_run(folder: Path, metrics: dict[str, Any], **config: Any) -> Path:
    """Write the files of a run that has as many iterations as its metrics have values."""
    (folder / "checkpoints").mkdir(parents=True)
    count = len(next(iter(metrics.values())))
    steps = [10 * x for x in range(1, count + 1)]
    columns = {"iteration": steps, "step": steps, "seconds": steps, **metrics}
    rows = [columns, *zip(*columns.values(), strict=True)]
    (folder / "metrics.csv").write_text("".join(",".join(map(str, x)) + "\n" for x in rows))
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    return folder


def evaluation(step: int, *returns: float) -> str:
    about = {"step": step, "mean": sum(returns) / 2, "std": 0.0, "env": {"goals": 0.5}}
    return json.dumps({**about, "returns": returns}) + "\n"


def charts_of(page: str) -> dict[str, ElementTree.Element]:
    found = re.findall(r"<figure>(.*?)(<svg.*?</svg>)", page, re.DOTALL)
    return {unescape(title): ElementTree.fromstring(svg) for title, svg in found}


def test_curves_are_values_or_means_between_the_lowest_and_the_highest(tmp_path):
    first = Record(write_run(tmp_path / "0", {"x": [1, "", 3, 5]}))
    other = Record(write_run(tmp_path / "1", {"x": [3, 4, 5]}, seed=1))
    assert curve([first], "x").tolist() == [[10, 30, 40], *[[1, 3, 5]] * 3]
    expected = [[10, 20, 30, 40], [2, 4, 4, 5], [1, 4, 3, 5], [3, 4, 5, 5]]
    assert curve([first, other], "x").tolist() == expected
    assert curve([first], "nothing").shape == (4, 0)


def test_curves_of_long_runs_have_few_points_and_keep_extremes(tmp_path):
    noise = np.random.default_rng(0).normal(size=20_000)
    found = curve([Record(write_run(tmp_path / "0", {"x": noise}))], "x")
    assert found.shape == (4, POINTS)
    assert found[1].mean() == pytest.approx(noise.mean())
    assert (found[2].min(), found[3].max()) == (noise.min(), noise.max())


def test_runs_that_differ_in_their_seed_are_a_group(tmp_path):
    for index, different in enumerate([{"seed": 1}, {"seed": 2}, {"gamma": 0.5}, {"seed": 2}]):
        write_run(tmp_path / str(index), {"x": [1]}, **different)
    runs = read_runs([str(tmp_path)])
    assert [len(x) for x in grouped(runs).values()] == [2, 1, 1]
    (tmp_path / "3/config.json").unlink()
    assert [*grouped(runs[:2])] == [f"mean of {tmp_path}/0 and 1 more"]
    (tmp_path / "2/config.json").unlink()
    assert [*grouped(runs[:2])] == [f"{tmp_path} (mean of 2 runs)"]


def test_a_row_says_how_far_a_run_is_and_what_its_policy_earns(tmp_path, capsys):
    folder = write_run(tmp_path / "runs/a", {"episode_return_mean": ["", 1.5, 2.25, ""]})
    text = evaluation(20, 4, 8) + evaluation(40, 2, 4)
    (folder / "evaluations.jsonl").write_text(text + evaluation(40) + text[:9])
    assert main(["runs", "--csv", str(tmp_path)]) == 0
    assert "/a,2.25,6.0,3.0,40,40,stopped,A<b>-v1,0:00:40\n" in capsys.readouterr().out
    (folder / "summary.json").write_text('{"steps": 40}')
    with (folder / "metrics.csv").open("a") as file:
        file.write("50,50,50,9")
    assert Record(folder).state == "complete"
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(["runs", f"--folder={tmp_path}"]) == 0
    assert re.search(
        r"\nruns/a +2.25 +6 +3 +40 +40 +training .* 0:00:40\n", capsys.readouterr().out
    )
    folder = write_run(tmp_path / "b", {"evaluation_return_mean": [1, 5, "", 2]})
    assert Record(folder).best() == 5


def test_a_table_of_runs_fits_a_narrow_terminal(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "a-long-name", {"env/success_rate": [0.25]})
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["runs", str(tmp_path)]) == 0
    shown = r"run +return +best +last +success +steps +state +environment\na-long-name .* 0.25 .*\n"
    assert re.fullmatch(shown, capsys.readouterr().out)


def test_labels_of_an_axis_differ_and_share_a_unit():
    assert [*_ticks(0, 1.2e12, 5).values()] == ["0", "0.5T", "1T"]
    assert [*_ticks(1.2346e6, 1.2352e6, 5).values()] == ["1.2346M", "1.2348M", "1.235M"]


def test_a_page_follows_a_run_until_it_ends(tmp_path, monkeypatch, capsys):
    folder = write_run(tmp_path / "run", {"loss": [1, 2, 3]})
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    page = report.page_of([Record(folder)])
    assert re.search("As of .* 30 of 40 steps, about 0:00:10 left", page, re.DOTALL)
    assert "http-equiv" not in page
    monkeypatch.setattr(report.time, "sleep", lambda seconds: lock.close())
    assert main(["report", str(folder), "--watch"]) == 0
    assert capsys.readouterr().out == f"page: {folder / 'report.html'}\n"
    page = (folder / "report.html").read_text()
    assert "stopped: 30 of 40 steps<" in page
    assert not re.search(r"http-equiv|<script|<link|@import|(src|href)=", page)


def test_a_page_has_what_the_files_say_and_nothing_of_it_is_markup(tmp_path):
    metrics = {"env/<i>": [1, 2], "env/success_rate": [0, 1], "episode_return_mean": ["", 5]}
    folder = write_run(tmp_path / "<b>&", metrics)
    (folder / "evaluations.jsonl").write_text(evaluation(20, 4, 8) * 2)
    (folder / "notes.txt").write_text("warning: <b>one</b>\n")
    page = report.page_of([Record(folder)])
    assert [*charts_of(page)] == [*curves.TITLES.values(), "env/<i>"]
    line = (
        "Return in training 5; last evaluation 6 \N{PLUS-MINUS SIGN} 0 (2 episodes); success rate"
    )
    assert f"<p>{line} in training 100%</p>" in page
    assert "warning: &lt;b&gt;one" in page
    assert not re.search("<[bi]>", page)


def test_runs_are_compared_in_what_differs(tmp_path):
    folders = [write_run(tmp_path / x, {"loss": [1, 2]}, gamma=x) for x in "ab"]
    page = report.page_of([*map(Record, folders)])
    assert re.search(r"<tr><td>gamma<td>a<td>b</table>", page)
    assert charts_of(page)["loss"].findall("path[@class='curve c1']")
    assert 'class="curve c1 dashed"' in curves.path("curve", 9, ["0 0"])


@pytest.mark.parametrize("values", [ODD, ODD[3:], ["nan"], ["0"], ["7", "7"], ["0", "1e-310"]])
def test_any_value_is_drawn_or_left_out(values, tmp_path):
    folder = write_run(tmp_path / "run", {"x": values})
    chart = charts_of(report.page_of([Record(folder)])).get("x")
    assert (chart is None) == (values in (["nan"], ["7", "7"]))
    assert chart is None or not re.search("nan|inf", ElementTree.tostring(chart, "unicode"))


def test_the_command_on_the_page_repeats_the_run(tmp_path, monkeypatch):
    train(Constant, tmp_path / "it's", 3, learning_rate="linear:0.1", patience=2)
    (command,) = re.findall("<pre>ppo (.*)</pre>", report.page_of([Record(tmp_path / "it's")]))
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(unescape(command))) == 0
    assert_same_state(tmp_path / "it's", tmp_path / "again")


def test_plot_draws_metrics_of_runs(tmp_path):
    folder = write_run(tmp_path / "run", {"loss": [1, 2], "env/goals": [3, 4]})
    path = tmp_path / "curves.svg"
    plot.main([str(folder)], plot.Flags(metric=("loss", "env/goals"), output=str(path)), {})
    assert len(ElementTree.parse(path).findall(".//*[@class='curve c0']")) == 3  # and its legend
    for flags in ({"metric": ("goal",)}, {"output": "x.gif"}, {"output": f"{folder}/no/x.svg"}):
        with pytest.raises(ConfigError, match=next(iter(flags))):
            plot.main([str(folder)], plot.Flags(**{"metric": ("loss",), **flags}), {})


def test_pages_need_no_torch(tmp_path):
    write_run(tmp_path / "run", {"loss": [1, 2]})
    code = "import sys; from ppo.cli import main; main(['report', 'run']); print(*sys.modules)"
    assert not {*python("-c", code, cwd=tmp_path).stdout.split()} & {"torch", "matplotlib"}
