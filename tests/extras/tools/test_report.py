"""The page and the pictures of a run, and runs by several seeds, by main.py in real processes."""

import base64
import json
import re
import shlex
import shutil
from html import escape, unescape
from pathlib import Path
from typing import Any

import imageio.v3
import numpy as np
import pytest

from ppo import load_policy, train
from ppo.config.config import Config
from ppo.config.flags import Settings, parse_flags
from ppo.config.settings import settings_of
from ppo.extras.tools.groups import group_runs
from ppo.extras.tools.plots import PANELS, curve, draw
from ppo.extras.tools.report import command, report_run, write_report
from ppo.extras.tools.resumes import read_latest
from ppo.run.folder import describe_run
from ppo.run.reader import RunRecord
from ppo.system.files import lock_file
from tests.environments import Bandit
from tests.running import BRIEF, TINY, Call, metrics, run_main

FLAGS = (*BRIEF, "--logger=none")


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train two seeds, then report them; return their folder, with the output in said.txt."""
    folder = tmp_path_factory.mktemp("seeds") / "runs"
    flags = ("--seeds=2", "--seed=4", "--video_every=2", f"--run_dir={folder}")
    done = run_main(*FLAGS, *flags)
    assert done.returncode == 0, done.stderr
    for name in ("s4", "s5"):
        report_run(folder / name)
    (folder / "said.txt").write_text(done.stdout)
    return folder


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_seed_is_the_run_that_it_would_be_alone(parent: Path, tmp_path: Path) -> None:
    assert run_main(*FLAGS, "--seed=5", f"--run_dir={tmp_path}").returncode == 0
    assert metrics(tmp_path) == metrics(parent / "s5")


@pytest.mark.slow
def test_the_report_needs_no_other_file(parent: Path) -> None:
    folder = parent / "s4"
    page = (folder / "report.html").read_text()
    assert not re.search(r"<script|<link|@import|https?:", page)
    assert not re.search(r"(?:src|href)=.(?!data:|#)", page)
    (content,) = re.findall(r"data:video/mp4;base64,([^\"]+)", page)
    video = max((folder / "videos").iterdir(), key=lambda path: int(path.stem))
    assert base64.b64decode(content) == video.read_bytes()
    assert imageio.v3.imread(folder / "curve.png").shape == (840, 1440, 4)


@pytest.mark.slow
def test_the_command_in_the_report_repeats_the_run(parent: Path, tmp_path: Path) -> None:
    page = (parent / "s5" / "report.html").read_text()
    (line,) = re.findall("<pre>ppo (.*)</pre>", page)
    assert sorted(line.split()) == sorted([*BRIEF, "--seed=5"])
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
    assert "/&lt;b&gt;run</title>" in page
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


SVG = r'<svg class="\w+" viewBox="0 0 \d+ \d+">(.*?)</svg>\s*'


def charts_of(page: Path) -> dict[str, tuple[str, str]]:
    """Return the charts on a page, over steps and over seconds, by title."""
    figure = f"<figcaption>(.*?)</figcaption>{SVG}{SVG}</figure>"
    charts = re.findall(figure, page.read_text(), re.S)
    return {unescape(title): (steps, seconds) for title, steps, seconds in charts}


def labels_of(svg: str) -> list[str]:
    """Return the texts in a chart: the labels of its ticks."""
    return re.findall("<text[^>]*>(.*?)</text>", svg)


def test_a_long_run_has_a_small_page_whose_curves_keep_their_extremes(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=20_000)
    noise[7] = np.nan
    noise[15_001] = np.inf
    names = [*PANELS, *(f"env/name_{i}" for i in range(5))]
    run = record(tmp_path, **dict.fromkeys(names, noise))
    write_report(group_runs([run]), tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 400_000
    finite = noise[np.isfinite(noise)]
    x, mean, low, high = curve([run], "step", "approx_kl")
    assert x[-1] == 2_000_000
    assert (np.diff(x) > 0).all()
    assert (low.min(), high.max()) == pytest.approx((finite.min(), finite.max()), rel=1e-5)
    assert mean.mean() == pytest.approx(finite.mean(), abs=1e-3)


def test_curves_have_their_target_and_explained_variance_its_limits(tmp_path: Path) -> None:
    variances = np.array([-50.0, 0.5, 1.0])
    write_report(
        group_runs([record(tmp_path, explained_variance=variances)]), tmp_path / "page.html"
    )
    assert '<li class="target">solved: 475</li>' in (tmp_path / "page.html").read_text()
    charts = charts_of(tmp_path / "page.html")
    steps, seconds = charts["mean return in training"]
    assert "stroke-dasharray" in steps
    assert labels_of(steps) == ["100", "150", "200", "250", "300", "0", "150", "300", "450"]
    assert labels_of(seconds)[:5] == ["1", "1.5", "2", "2.5", "3"]
    assert labels_of(charts["explained variance"][0])[5:] == ["-1", "-0.5", "0", "0.5", "1"]


def test_a_page_is_drawn_whatever_the_values_and_names(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    folder = tmp_path / "a$b_<i>&$"
    folder.mkdir()
    odd = {
        "env/$x_<b>$&": np.array([1e308, -1e308, 3]),
        "env/nothing": np.full(3, np.nan),
        "env/too large": np.array([1e308, np.inf, -np.inf]),
        "env/zero": np.zeros(3),
        "env/tiny": np.array([0, 5e-324, 1e-310]),
        "env/near": 1e9 + np.array([0, 1e-7, 2e-7]),
        "env/large": np.array([-1e100, 1e100, 0]),
        "env/one": np.array([np.nan, 2, np.nan]),
    }
    run = record(folder, **odd)
    for name in ("page", "again"):
        write_report(group_runs([run]), tmp_path / f"{name}.html")
    draw(group_runs([run]), tmp_path / "curve.png")
    assert not recwarn.list
    drawn = odd.keys() - {"env/nothing", "env/too large"}
    assert charts_of(tmp_path / "page.html").keys() == {"mean return in training", *drawn}
    page = (tmp_path / "page.html").read_text()
    assert f"<span>{escape(run.name)}</span>" in page
    assert not re.search("<b>|<i>|nan|inf[^o]", page)
    assert (tmp_path / "again.html").read_text() == page
    ids = re.findall(r' id="(.*?)"', page)
    assert len({*ids}) == len(ids) >= 14
    assert {*re.findall(r'(?:url\(|href=")#(.*?)["\)]', page)} == {*ids} - {"step", "seconds"}


def test_what_the_trainer_noticed_is_on_the_page(tmp_path: Path) -> None:
    events = [
        {"kind": "doctor", "message": "the policy <leaps>"},
        {"kind": "resumed", "message": ""},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(x) + "\n" for x in events))
    faults = {"faults/worker_lost": np.array([0.0, 2.0])}
    write_report(group_runs([record(tmp_path, **faults)]), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<li>the policy &lt;leaps&gt;</li></ul>" in page
    assert "<dd>2 <small>(worker lost)</small></dd>" in page
    assert "<td></td>" not in page


def test_the_environments_own_numbers_are_in_a_table_and_each_is_there_once(
    tmp_path: Path,
) -> None:
    own = {f"number_{i}": 9000.0 + i for i in range(10)}
    env = {**own, "is_success": 0.25, "success_rate": 0.25}
    evaluation = {"returns": [1.0, 3.0], "env": env}
    summary = {"steps": 300, "seconds": 3, "evaluation": evaluation}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    curves = {f"env/{name}": np.arange(3.0) for name in env}
    run = record(tmp_path, **curves)
    write_report(group_runs([run]), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<dd>2.00 <small>[1.00, 3.00] over 2 episodes at step 300</small></dd>" in page
    assert "<tr><td>number_9</td><td>9,009</td></tr>" in page
    assert "<tr><td>success_rate</td><td>0.25</td></tr>" in page
    assert "is_success" not in page
    assert len(re.findall("<figcaption>env/", page)) == 11
    other = record(tmp_path / "other", **curves)._replace(config={"env_name": "X", "gamma": 1})
    write_report(group_runs([run, other]), tmp_path / "both.html")
    page = (tmp_path / "both.html").read_text()
    assert "<td>2.00 [1.00, 3.00] over 2 episodes at step 300</td>" in page
    assert "<tr><td>number_9</td><td>9,009</td><td>-</td></tr>" in page
    assert "is_success" not in page


@pytest.mark.slow
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
    together, alone = re.findall(r'<li style="color: (#\w+)"><span>(.*?)</span>', page)
    assert together[1] == "gamma=0.99: IQM of 2 seeds, 95 % interval"
    assert alone[1] == f"{tmp_path.name}/other"
    for chart in charts_of(tmp_path / "all.html")["mean return in training"]:
        assert chart.count(f"stroke: {together[0]}") == chart.count(f"stroke: {alone[0]}") == 1
        assert f"fill: {together[0]}" in chart
    assert call("report", *runs, f"--output={tmp_path / 'all.html'}")[0] == 2


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_the_page_works_in_a_browser(width: int, scheme: Any, parent: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    api = pytest.importorskip("playwright.sync_api")
    if not browser:
        pytest.skip("there is no Chromium")
    problems: list[str] = []
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        size: Any = {"width": width, "height": 1600}
        page = chromium.new_page(
            viewport=size, offline=True, color_scheme=scheme, java_script_enabled=False
        )
        page.on("console", lambda message: problems.append(message.text))
        page.on(
            "request",
            lambda request: (
                problems.append(request.url) if request.url.startswith("http") else None
            ),
        )
        page.goto((parent / "s4" / "report.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
        seen = {unit: page.locator(f"svg.{unit}:visible") for unit in ("step", "seconds")}
        assert (seen["step"].count(), seen["seconds"].count()) == (6, 0)
        for chart in seen["step"].all():
            box = chart.locator("text").first.bounding_box()
            assert box
            assert box["height"] > 9  # pixels
        page.click("label[for=seconds]")
        assert (seen["step"].count(), seen["seconds"].count()) == (0, 6)
        page.click("pre")
        line = page.evaluate("getSelection().toString()")
        assert line.startswith("ppo --env_name=CartPole-v1 --preset=none")
        assert not page.get_by_text("num_minibatches", exact=True).is_visible()
        page.click("summary")
        assert page.get_by_text("num_minibatches", exact=True).is_visible()
        assert page.locator("video").bounding_box()
        page.screenshot(path=tmp_path / "page.png")
        chromium.close()
    assert problems == []
    picture = imageio.v3.imread(tmp_path / "page.png")
    assert picture.std() > 10
    assert (np.median(picture) < 100) == (scheme == "dark")


def described(given: Settings, config: Config | None = None) -> Settings:
    """Return the content of the config.json of a run that flags, or else a Config, lead to."""
    settings = settings_of(config or given)
    return json.loads(json.dumps(describe_run(settings.config, settings.auto)))


def given_by(line: str) -> Settings:
    """Return the flags of a command line."""
    program, *arguments = shlex.split(line)
    assert program == "ppo"
    return parse_flags(arguments, Config)


def check_repeats(run: Settings) -> None:
    """The command of a run leads to all its settings."""
    again = described(given_by(command(run)))
    names = {*Config.names(scope="training")} - {"preset"}
    assert {name: again[name] for name in names} == {name: run[name] for name in names}


@pytest.mark.parametrize(
    "flags",
    [
        "--env_name=CartPole-v1",  # with a preset of its own
        "--env_name=Taxi-v4",  # with that of its family
        "--env_name=PongNoFrameskip-v4",
        "--env_name=CartPole-v1 --preset=none",
        "--env_name=CartPole-v1 --preset=tutorial --hidden_size=32",
        "--env_name=CartPole-v1 --preset=none --clip_coef=0.3 --clip_value_coef=0.1",
        "--env_name=Taxi-v4 --num_minibatches=8 --batch_size=256",
        "--env_name=ALE/Pong-v5 --sticky_actions=0.0 --noop_max=5 --clip_rewards=False",
        "--env_name=CartPole-v1 '--env_kwargs={\"sutton_barto_reward\": true}' "
        "'--wrapper=gymnasium.wrappers:TimeAwareObservation()'",
    ],
)
def test_the_command_in_the_report_names_only_what_is_not_the_default(flags: str) -> None:
    given = given_by(f"ppo {flags}")
    run = described(given)
    assert given_by(command(run)) == given
    check_repeats(run)


def test_settings_that_no_preset_gave_have_a_command_too(tmp_path: Path) -> None:
    plain = described({}, Config(env_name="CartPole-v1", gamma=0.5))
    assert command(plain) == "ppo --env_name=CartPole-v1 --preset=none --gamma=0.5"
    check_repeats(plain)
    preset = tmp_path / "mine.json"
    preset.write_text('{"gamma": 0.5, "num_minibatches": 2, "num_epochs": 1}')
    mine = described({"env_name": "CartPole-v1", "preset": str(preset)})
    assert command(mine) == f"ppo --env_name=CartPole-v1 --preset={preset}"
    preset.write_text('{"gamma": 0.7}')
    check_repeats(mine)
    preset.unlink()
    assert "--gamma=0.5 " in command(mine) + " "
    check_repeats(mine)
    old = {name: value for name, value in mine.items() if name != "auto"}
    check_repeats(old)
    assert "--preset=none" in command({**old, "env_name": "Taxi-v4"})


def test_what_only_python_can_repeat_is_not_shown_as_a_command(tmp_path: Path) -> None:
    flags: dict[str, Any] = {**TINY, "total_steps": 16, "run_dir": str(tmp_path / "run")}
    del flags["env_name"], flags["report"]
    train(Bandit, **flags, preset="none", entropy_coef=half)
    page = unescape((tmp_path / "run" / "report.html").read_text())
    given = "env_name=Bandit, entropy_coef=tests.extras.tools.test_report:half"
    said = f"No command repeats this run: Python gave it {given}. This call does:"
    assert said in page
    (line,) = re.findall("<pre>(.*)</pre>", page)
    assert line.startswith("train(Bandit, preset='none', num_envs=2, ")
    assert "entropy_coef=..." in line
    assert "<Bandit>" not in page
    assert "<dt>environment</dt><dd>Bandit</dd>" in page


def half(remaining: float) -> float:
    return 0.5 * remaining


def test_after_resumes_the_command_is_that_of_the_last_settings(tmp_path: Path) -> None:
    flags: dict[str, Any] = {**TINY, "total_steps": 64, "run_dir": str(tmp_path), "seed": 3}
    train(flags.pop("env_name"), preset="none", **flags)
    flags = {"verbose": 0, "report": False, "resume": str(tmp_path)}
    train("CartPole-v1", **flags, total_steps=96)
    train("CartPole-v1", **flags, total_steps=128, gamma=0.5)
    report_run(tmp_path)
    page = (tmp_path / "report.html").read_text()
    (line,) = re.findall("<pre>(.*)</pre>", page)
    given = parse_flags(shlex.split(line)[1:], Config)
    assert (given["total_steps"], given["gamma"], given["seed"]) == ("128", "0.5", "3")
    check_repeats({**read_latest(tmp_path).config})
    assert "<li>after step 64: total_steps=96 instead of 64</li>" in page
    second = "after step 96: total_steps=128 instead of 96, gamma=0.5 instead of 0.99"
    assert f"<li>{second}</li>" in page
    assert json.loads((tmp_path / "config.json").read_text())["total_steps"] == 64
    events = (tmp_path / "events.jsonl").read_text()
    bad = '{"kind": "resumed", "step": 1, "differences": [], "settings": {"env_name": 5}}\n'
    (tmp_path / "events.jsonl").write_text(events + bad)
    assert read_latest(tmp_path).config["total_steps"] == 128


@pytest.mark.slow
def test_the_table_of_seeds_has_the_results_that_runs_shows(parent: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(parent, tmp_path / "seeds", symlinks=True))
    done = run_main("evaluate", str(folder / "s5"), "--episodes=4")
    assert done.returncode == 0, done.stderr
    mean = load_policy(folder / "s5").evaluate(4).mean
    done = run_main(*FLAGS, "--seeds=2", "--seed=4", f"--run_dir={folder}", "--resume=auto")
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^5 +[\d.]+ +{mean:.1f} +\d+$", done.stdout, re.M)
    done = run_main("runs", f"--folder={folder}")
    assert re.search(rf"^s5 +ended +CartPole-v1 +{mean:.1f} +4 +2560 ", done.stdout, re.M)
