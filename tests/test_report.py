"""The page and the pictures of a run, and runs by several seeds, by main.py in real processes."""

import base64
import json
import re
import shlex
import shutil
from html import unescape
from pathlib import Path

import imageio.v3
import numpy as np
import pytest

from ppo.analysis.report import command, write_report
from ppo.run.highlights import find_episode
from ppo.run.reader import RunRecord, read_run
from tests.running import BRIEF, metrics, run_main

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
    (line,) = re.findall(r"<pre>python main.py (.*)</pre>", page)
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
    assert "<td>77</td>" in page
    assert "<title>&lt;b&gt;run</title>" in page
    for name, problem in (
        ("page.html", "is there already"),
        ("page.html/page.html", "cannot be written to"),
    ):
        done = run_main("report", str(folder), f"--output={tmp_path / name}")
        assert done.returncode == 2
        assert f"error: --output={tmp_path / name} {problem}" in done.stderr


def test_all_metrics_of_an_environment_have_room_on_the_page(tmp_path: Path) -> None:
    columns = ["step", "episode_return_mean", *(f"env/name_{i}" for i in range(64))]
    record = RunRecord(tmp_path, {}, {name: np.arange(3.0) for name in columns})
    write_report(record, None, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert [i for i in range(64) if not re.search(rf"env(/|\\u002f)name_{i}\b", page)] == []


def test_the_page_works_in_a_browser(parent: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    api = pytest.importorskip("playwright.sync_api")
    if not browser:
        pytest.skip("there is no Chromium")
    problems: list[str] = []
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1000, "height": 1600}, offline=True)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                problems.append(request.url) if request.url.startswith("http") else None
            ),
        )
        page.goto((parent / "s4" / "report.html").as_uri())
        page.wait_for_selector(".js-plotly-plot .scatterlayer path")
        axis = "() => document.querySelector('.js-plotly-plot').layout.xaxis.range"
        before = page.evaluate(axis)
        box = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
        page.mouse.move(box["x"] + 100, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + 60, steps=5)
        page.mouse.up()
        page.wait_for_function(
            f"before => String(({axis})()) != before", arg=str(before).strip("[]").replace(" ", "")
        )
        zoomed = page.evaluate(axis)
        assert before[0] < zoomed[0] < zoomed[1] < before[1]
        assert not page.get_by_text("num_minibatches", exact=True).is_visible()
        page.click("summary")
        assert page.get_by_text("num_minibatches", exact=True).is_visible()
        page.wait_for_function("document.querySelector('video').readyState >= 2")
        assert page.evaluate("document.querySelector('video').videoWidth") == 600
        page.screenshot(path=tmp_path / "page.png")
        chromium.close()
    assert problems == []
    assert imageio.v3.imread(tmp_path / "page.png").std() > 10


def test_a_run_without_episodes_has_a_report(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"env_name": "E", "env_kwargs": {"a": 1}, "seed": None})
    )
    (tmp_path / "metrics.csv").write_text(
        "iteration,step,seconds,episode_return_mean,approx_kl\n1,10,1,,0.1\n2,20,2,,0.2\n"
    )
    write_report(read_run(tmp_path), None, tmp_path / "report.html")
    assert "<video" not in (tmp_path / "report.html").read_text()
    assert command(read_run(tmp_path).config).endswith(
        """--env_name=E '--env_kwargs={"a": 1}' --seed=None"""
    )
