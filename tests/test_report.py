"""The page and the pictures of a run, and runs by several seeds, by main.py in real processes."""

import base64
import json
import re
import shlex
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import imageio.v3
import numpy as np
import pytest

from ppo.callbacks.highlights import find_episode
from ppo.run.reader import RunRecord, read_run
from ppo.system.files import lock_file
from ppo.tools.report import command, write_report
from tests.running import BRIEF, Call, metrics, run_main

FLAGS = (*BRIEF, "--logger=none")


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train two seeds with all reports; return their folder, with the output in said.txt."""
    folder = tmp_path_factory.mktemp("seeds") / "runs"
    done = run_main(*FLAGS, "--seeds=2", "--seed=4", "--report", f"--run_dir={folder}")
    assert done.returncode == 0, done.stderr
    (folder / "said.txt").write_text(done.stdout)
    return folder


def test_seeds_train_in_folders_of_their_own_and_end_in_a_table(parent: Path) -> None:
    assert sorted(path.name for path in parent.iterdir()) == ["curves.png", "s4", "s5", "said.txt"]
    assert imageio.v3.imread(parent / "curves.png").std() > 10
    summaries = [json.loads((parent / name / "summary.json").read_text()) for name in ("s4", "s5")]
    assert [summary["seed"] for summary in summaries] == [4, 5]
    said = (parent / "said.txt").read_text()
    for summary in summaries:
        returns = f"{summary['mean_return']:.1f} +{summary['evaluation']['mean']:.1f}"
        row = rf"^{summary['seed']} +{returns} +\d+$"
        assert re.search(row, said, re.M), said
    mean = np.mean([summary["mean_return"] for summary in summaries])
    assert f"last 100: interquartile mean {mean:.1f} (95 % interval " in said


def test_a_seed_is_the_run_that_it_would_be_alone(parent: Path, tmp_path: Path) -> None:
    assert run_main(*FLAGS, "--seed=5", f"--run_dir={tmp_path}").returncode == 0
    assert metrics(tmp_path) == metrics(parent / "s5")


@pytest.mark.slow
def test_seeds_that_saw_no_episode_have_a_table_too(tmp_path: Path) -> None:
    flags = (
        "--env_name=Pendulum-v1",
        "--preset=none",
        "--total_steps=1024",
        "--eval_episodes=0",
        "--num_workers=0",
    )
    done = run_main(*flags, "--seeds=2", f"--run_dir={tmp_path / 'runs'}")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^1 +- +- +\d+$", done.stdout, re.M)
    done = run_main(*flags, "--seeds=2", f"--resume={tmp_path / 'runs' / 's0'}")
    assert done.returncode == 2


def test_seeds_overwrite_nothing_and_say_when_one_fails(parent: Path, tmp_path: Path) -> None:
    done = run_main(*FLAGS, "--seeds=2", f"--run_dir={parent}")
    assert done.returncode == 2
    assert "is not empty, and no run is overwritten: choose another by --run_dir" in done.stderr
    flags = ["--env_name=tests.environments:BadReset-v0", "--preset=none", "--seeds=2"]
    done = run_main(*flags, f"--run_dir={tmp_path / 'runs'}")
    assert done.returncode == 1
    assert f"error: the run in {tmp_path / 'runs' / 's0'} ended with exit code 1" in done.stderr


def test_the_report_needs_no_other_file(parent: Path) -> None:
    folder = parent / "s4"
    page = (folder / "report.html").read_text()
    assert not re.search(
        r"""(?:src|href)=["'](?!data:)""",
        page.replace("<script", "\n<script").split("<body")[0][:3000],
    )
    assert not re.search(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="?(?!data:)http', page)
    (content,) = re.findall(r"data:video/mp4;base64,([^\"]+)", page)
    best = find_episode(folder, "best")
    (video,) = (folder / "videos").iterdir()
    assert base64.b64decode(content) == video.read_bytes()
    assert video.name == f"best-{best['step']}.mp4"
    assert len(imageio.v3.imread(video)) == best["episode_length"] + 1
    assert imageio.v3.imread(folder / "curve.png").shape == (840, 1440, 4)


def test_the_command_in_the_report_repeats_the_run(parent: Path, tmp_path: Path) -> None:
    page = (parent / "s5" / "report.html").read_text()
    (line,) = re.findall(r"<pre id=\"command\">python main.py (.*)</pre>", page)
    done = run_main(*shlex.split(unescape(line)), f"--run_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert metrics(tmp_path) == metrics(parent / "s5")


@pytest.mark.slow
def test_a_report_is_written_later_with_evaluations(parent: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(parent / "s4", tmp_path / "<b>run", symlinks=True))
    assert run_main("evaluate", str(folder), "--episodes=3", "--seed=77").returncode == 0
    done = run_main("report", str(folder), f"--output={tmp_path / 'page.html'}")
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "page.html").read_text()
    assert "<td>later, with seed 77</td>" in page
    assert "<title>&lt;b&gt;run</title>" in page
    for name, problem in (
        ("page.html", "is there already"),
        ("page.html/page.html", "cannot be written to"),
    ):
        done = run_main("report", str(folder), f"--output={tmp_path / name}")
        assert done.returncode == 2
        assert f"error: --output={tmp_path / name} {problem}" in done.stderr


def record(folder: Path, **metrics: np.ndarray) -> RunRecord:
    """A run of as many iterations as the metrics have values."""
    count = len(next(iter(metrics.values())))
    plain = {"step": 100.0 * np.arange(1, count + 1), "seconds": np.arange(1.0, count + 1)}
    returns = {"episode_return_mean": np.linspace(0, 400, count)}
    config = {"env_name": "CartPole-v1", "seed": 0}
    return RunRecord(folder, config, {**plain, **returns, **metrics})


def charts_of(page: Path) -> dict[str, Any]:
    """Return the charts that a page holds, by title."""
    (text,) = re.findall(r'id="charts">(.*?)</script>', page.read_text(), re.S)
    return {chart["title"]: chart for chart in json.loads(text)}


def test_all_metrics_of_an_environment_have_room_on_the_page(tmp_path: Path) -> None:
    many = {f"env/name_{i}": np.arange(3.0) for i in range(64)}
    write_report([record(tmp_path, **many)], tmp_path / "page.html")
    assert charts_of(tmp_path / "page.html").keys() > many.keys()


def test_a_long_run_has_a_small_page_whose_curves_keep_their_extremes(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=20_000)
    noise[7] = np.nan
    noise[15_001] = np.inf
    names = ["approx_kl", "clip_fraction", *(f"env/name_{i}" for i in range(10))]
    values = dict.fromkeys(names, noise)
    write_report([record(tmp_path, **values)], tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 1_000_000
    (series,) = charts_of(tmp_path / "page.html")["KL of an update"]["series"]
    finite = noise[np.isfinite(noise)]
    x, mean, low, high = map(np.array, series["steps"])
    assert x[-1] == 2_000_000
    assert (np.diff(x) > 0).all()
    assert (low.min(), high.max()) == pytest.approx((finite.min(), finite.max()), rel=1e-5)
    assert mean.mean() == pytest.approx(finite.mean(), abs=1e-3)


def test_curves_have_their_target_and_explained_variance_its_limits(tmp_path: Path) -> None:
    variances = np.array([-50.0, 0.5, 1.0])
    write_report([record(tmp_path, explained_variance=variances)], tmp_path / "page.html")
    charts = charts_of(tmp_path / "page.html")
    assert charts["mean return of 100 episodes"]["target"] == 475
    (series,) = charts["explained variance"]["series"]
    assert series["steps"] == [[100, 200, 300], [-1, 0.5, 1]]
    assert series["seconds"][0] == [1, 2, 3]


def test_what_the_trainer_noticed_is_on_the_page(tmp_path: Path) -> None:
    events = [
        {"kind": "doctor", "message": "the policy <leaps>"},
        {"kind": "resumed", "message": ""},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(x) + "\n" for x in events))
    faults = {"faults/worker_lost": np.array([0.0, 2.0])}
    write_report([record(tmp_path, **faults)], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<li>the policy &lt;leaps&gt;</li></ul>" in page
    assert "<dd>2 (worker lost)</dd>" in page
    assert "<td></td>" not in page


def test_a_large_video_is_linked(parent: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(parent / "s4", tmp_path / "run", symlinks=True))
    (video,) = (folder / "videos").iterdir()
    video.write_bytes(bytes(600_000))
    done = run_main("report", str(folder), f"--output={tmp_path / 'page.html'}")
    assert (done.returncode, done.stderr) == (0, "")
    assert f'src="run/videos/{video.name}"' in (tmp_path / "page.html").read_text()


def test_runs_are_compared_on_one_page(parent: Path, tmp_path: Path, call: Call) -> None:
    other = Path(shutil.copytree(parent / "s4", tmp_path / "other", symlinks=True))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "gamma": 0.5}))
    runs = [str(parent / "s4"), str(parent / "s5"), str(other)]
    code, out, err = call("report", *runs, f"--output={tmp_path / 'all.html'}")
    assert (code, out, err) == (0, f"page: {tmp_path / 'all.html'}\n", "")
    page = (tmp_path / "all.html").read_text()
    assert "<tr><td>gamma</td><td>0.99</td><td>0.99</td><td>0.5</td></tr>" in page
    assert "<td>num_envs</td>" not in page
    together, alone = charts_of(tmp_path / "all.html")["mean return of 100 episodes"]["series"]
    assert together["label"] == "CartPole-v1: IQM of 2 seeds, 95 % interval"
    assert alone["label"] == f"{tmp_path.name}/other"
    assert (together["number"], alone["number"]) == (0, 1)
    assert len(together["seconds"]) == 4
    assert call("report", *runs, f"--output={tmp_path / 'all.html'}")[0] == 2


def test_the_runs_in_a_folder_are_listed(parent: Path, tmp_path: Path, call: Call) -> None:
    folder = Path(shutil.copytree(parent / "s4", tmp_path / "new", symlinks=True))
    shutil.copytree(parent / "s5", tmp_path / "group" / "half", symlinks=True)
    (tmp_path / "group" / "half" / "summary.json").unlink()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "metrics.csv").write_text("nothing\n")
    code, out, err = call("runs", f"--folder={tmp_path}")
    assert (code, err) == (0, "")
    summary = json.loads((folder / "summary.json").read_text())
    rows = {line.split()[0]: line.split() for line in out.splitlines()}
    assert rows["new"][1:4] == ["ended", "CartPole-v1", f"{summary['evaluation']['mean']:.1f}"]
    assert rows["group/half"][1:4] == ["stopped", "CartPole-v1", "-"]
    assert "broken" not in rows
    locked = lock_file(folder / "lock")
    try:
        assert re.search(r"new +training", call("runs", f"--folder={tmp_path}")[1])
    finally:
        locked.close()
    code, _, err = call("runs", f"--folder={tmp_path / 'none'}")
    assert (code, "there are no runs in it" in err) == (2, True)


WIDTHS = [(1280, "light"), pytest.param(400, "dark", marks=pytest.mark.slow)]


@pytest.mark.parametrize(("width", "scheme"), WIDTHS)
def test_the_page_works_in_a_browser(width: int, scheme: Any, parent: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    api = pytest.importorskip("playwright.sync_api")
    if not browser:
        pytest.skip("there is no Chromium")
    problems: list[str] = []
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        size: Any = {"width": width, "height": 1600}
        page = chromium.new_page(viewport=size, offline=True, color_scheme=scheme)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text))
        page.on(
            "request",
            lambda request: (
                problems.append(request.url) if request.url.startswith("http") else None
            ),
        )
        page.goto((parent / "s4" / "report.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("plots.length") == page.locator("canvas").count() >= 6
        axis = "index => [plots[index].scales.x.min, plots[index].scales.x.max]"
        before = page.evaluate(axis, 0)
        box = page.locator("#large .u-over").bounding_box()
        assert box
        page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 60, steps=5)
        page.mouse.up()
        page.wait_for_function(f"before => ({axis})(0)[0] != before", arg=before[0])
        zoomed = page.evaluate(axis, 0)
        assert before[0] < zoomed[0] < zoomed[1] < before[1]
        assert page.evaluate(axis, 3) == zoomed
        page.click("[data-unit=seconds]")
        seconds = read_run(parent / "s4").metrics["seconds"][-1]
        assert page.evaluate(axis, 0)[1] == pytest.approx(seconds, rel=1e-4)
        page.click("[data-copy]")
        assert "copied" in page.inner_text("[data-copy]")
        assert page.evaluate("getSelection().toString()").startswith("python main.py --preset=none")
        assert not page.get_by_text("num_minibatches", exact=True).is_visible()
        page.click("summary")
        assert page.get_by_text("num_minibatches", exact=True).is_visible()
        page.wait_for_function("document.querySelector('video').readyState >= 2")
        assert page.evaluate("document.querySelector('video').videoWidth") == 600
        page.screenshot(path=tmp_path / "page.png")
        chromium.close()
    assert problems == []
    picture = imageio.v3.imread(tmp_path / "page.png")
    assert picture.std() > 10
    assert (np.median(picture) < 100) == (scheme == "dark")


def test_a_run_without_episodes_has_a_report(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"env_name": "E", "env_kwargs": {"a": 1}, "seed": None})
    )
    (tmp_path / "metrics.csv").write_text(
        "iteration,step,seconds,episode_return_mean,approx_kl\n1,10,1,,0.1\n2,20,2,,0.2\n"
    )
    write_report([read_run(tmp_path)], tmp_path / "report.html")
    assert "<video" not in (tmp_path / "report.html").read_text()
    assert command(read_run(tmp_path).config).endswith(
        """--env_name=E '--env_kwargs={"a": 1}' --seed=None"""
    )
