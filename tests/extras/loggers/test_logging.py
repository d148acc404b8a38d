"""Loggers, read back from what they have written; none of them changes the training."""

import json
import os
from pathlib import Path
from typing import Any

import imageio.v3
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import main
from ppo import Config, train
from ppo.extras.loggers.names import GROUPED
from tests.running import BRIEF, metrics, run_main

RUN = (*BRIEF, "--checkpoint_every=3")
HISTOGRAMS = {
    "observations",
    "actions",
    "advantages",
    "returns",
    "values",
    "ratios",
    "episode_returns",
    "episode_lengths",
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without loggers."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    assert main.main([*RUN, "--logger=none", "--report=False", f"--run_dir={folder}"]) == 0
    return folder


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same run with all loggers, histograms, evaluations and videos."""
    folder = tmp_path_factory.mktemp("shown") / "run"
    flags = (
        "--logger=console,tensorboard,wandb",
        "--histogram_every=2",
        "--eval_every=4",
        "--video_every=5",
        "--log_checkpoint",
        "--wandb_project=landing",
        "--wandb_entity=us",
        "--wandb_tags=first,try",
    )
    done = run_main(
        *RUN, *flags, "--report", f"--run_dir={folder}", env={**os.environ, "WANDB_MODE": "offline"}
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_training_is_the_same_with_any_loggers(plain: Path, shown: Path) -> None:
    rows = metrics(shown)
    evaluations = [row.pop("evaluation_return_mean") for row in rows]
    assert rows == metrics(plain)
    assert [bool(mean) for mean in evaluations] == [
        iteration % 4 == 0 for iteration in range(1, 11)
    ]
    first, second = (json.loads((folder / "summary.json").read_text()) for folder in (plain, shown))
    assert first["evaluation"] == second["evaluation"]


def test_videos_and_the_curve_are_in_the_folder(plain: Path, shown: Path) -> None:
    assert sorted(path.name for path in (shown / "videos").iterdir()) == ["1280.mp4", "2560.mp4"]
    assert imageio.v3.imread(shown / "videos" / "2560.mp4").shape[1:] == (400, 600, 3)
    assert imageio.v3.imread(shown / "curve.png").shape[:2] == (840, 1440)
    assert not (plain / "curve.png").exists()


def test_tensorboard_has_every_metric_and_histogram(shown: Path) -> None:
    events = EventAccumulator(str(shown), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    rows = metrics(shown)
    assert all("/" in GROUPED.get(name, name) for name in rows[0])
    for name in rows[0].keys() - {"iteration"}:
        logged = {event.step: event.value for event in events.Scalars(GROUPED.get(name, name))}
        expected = {int(row["step"]): float(row[name]) for row in rows if row[name]}
        assert logged == pytest.approx(expected, rel=1e-5), name
    assert {name.removeprefix("histograms/") for name in events.Tags()["histograms"]} == HISTOGRAMS
    for event in events.Histograms("histograms/ratios"):
        assert event.step % 512 == 0
        assert event.histogram_value.num == 256
        assert 0 < event.histogram_value.min < event.histogram_value.max
    summary = json.loads((shown / "summary.json").read_text())
    (event,) = events.Scalars("eval/mean")
    assert event.value == pytest.approx(summary["evaluation"]["mean"])


@pytest.mark.slow
def test_tensorboard_shows_what_an_images_network_sees(tmp_path: Path) -> None:
    flags = (
        "--num_envs=2",
        "--num_steps=8",
        "--num_minibatches=1",
        "--model=cnn_small",
        "--image=color",
        "--num_workers=0",
        "--num_iterations=1",
        "--histogram_every=1",
        "--logger=tensorboard",
        "--eval_episodes=0",
    )
    name = "--env_name=tests.environments:Picture-v0"
    done = run_main(name, *flags, f"--run_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (image,) = events.Images("frame")
    assert imageio.v3.imread(image.encoded_image_string).shape[:2] == (84, 84)


WANDB = """
import json, os
from types import SimpleNamespace as Settings

def note(kind, content):
    with open(os.environ["RECORD"], "a") as file:
        print(json.dumps([kind, content], default=vars), file=file)

class Histogram:
    def __init__(self, numbers):
        self.size = len(numbers)

class Video:
    def __init__(self, path):
        self.path = path

class Artifact:
    def __init__(self, name, type):
        self.type, self.files = type, {}

    def add_file(self, path, name):
        self.files[name] = path

class Run:
    summary = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        note("summary", self.summary)

    def log(self, row, step=None):
        note("log", row)

    def log_artifact(self, artifact):
        note("artifact", artifact)

def init(**options):
    note("init", {name: x for name, x in options.items() if name not in ("settings", "dir")})
    return Run()
"""  # what we call of it


@pytest.mark.slow
def test_wandb_is_given_every_metric_the_histograms_videos_and_the_checkpoint(
    tmp_path: Path,
) -> None:
    (tmp_path / "wandb.py").write_text(WANDB)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    about = ("--wandb_project=landing", "--wandb_entity=us", "--wandb_tags=first,try")
    much = ("--histogram_every=2", "--video_every=5", "--log_checkpoint")
    folder = tmp_path / "run"
    record = tmp_path / "record"
    done = run_main(
        *(*RUN, "--logger=wandb", *about, *much, f"--run_dir={folder}"),
        env={**os.environ, "PYTHONPATH": paths, "RECORD": str(record)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    given: dict[str, list[Any]] = {"init": [], "log": [], "artifact": [], "summary": []}
    for kind, content in map(json.loads, record.read_text().splitlines()):
        given[kind].append(content)

    rows = [row for row in given["log"] if "time/iteration" in row]
    assert len(rows) == len(metrics(folder)) == 10
    for row, kept in zip(rows, metrics(folder), strict=True):
        expected = {GROUPED.get(name, name): float(x) for name, x in kept.items() if x}
        assert {name: float(f"{row[name]:.6g}") for name in expected} == expected
        names = {name.removeprefix("histograms/") for name in row if name[:10] == "histograms"}
        assert names == (HISTOGRAMS & names if row["time/iteration"] % 2 == 0 else set())
        assert len(names) >= 6 * (row["time/iteration"] % 2 == 0)

    (run,) = given["init"]
    assert (run["config"]["env_name"], run["config"]["num_steps"]) == ("CartPole-v1", 64)
    assert run["tags"] == ["CartPole-v1", "mlp", "none", "first", "try"]
    assert (run["project"], run["entity"]) == ("landing", "us")
    assert run["group"].startswith("CartPole-v1-")
    assert run["id"] == json.loads((folder / "config.json").read_text())["run_id"]

    videos = [*(folder / "videos").iterdir()]
    shown = [row[name]["path"] for row in given["log"] for name in row if name[:7] == "videos/"]
    assert len(videos) >= 2
    assert sorted(shown) == sorted(map(str, videos))
    (artifact,) = given["artifact"]
    checkpoint = str(folder / "checkpoints" / "last.safetensors")
    assert artifact == {"type": "model", "files": {"checkpoint.safetensors": checkpoint}}
    (summary,) = given["summary"]
    assert summary["steps"] == 2560


@pytest.mark.slow
def test_histograms_of_a_network_that_remembers_are_of_the_update(tmp_path: Path) -> None:
    remembers = (
        "--model=lstm",
        "--histogram_every=1",
        "--num_iterations=1",
        "--logger=tensorboard",
        "--num_epochs=1",
    )
    done = run_main(*RUN, *remembers, "--learning_rate=1e-9", f"--run_dir={tmp_path}")
    assert (done.returncode, done.stderr) == (0, "")
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (event,) = events.Histograms("histograms/ratios")
    assert event.histogram_value.min == pytest.approx(1, abs=1e-4)  # nearly nothing was learned
    assert event.histogram_value.max == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_a_video_that_cannot_be_made_ends_nothing(tmp_path: Path) -> None:
    name = "--env_name=tests.faults:Fault"  # which takes no render_mode
    done = run_main(name, *RUN[1:], "--video_every=4", "--report", f"--run_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 2
    assert done.stderr.count(".mp4 cannot be made: ") == 2
    assert (tmp_path / "report.html").exists()
    assert len(metrics(tmp_path)) == 10


def test_verbose_0_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    values = {
        "env_name": "CartPole-v1",
        "num_envs": 2,
        "num_steps": 8,
        "total_steps": 32,
        "num_minibatches": 1,
        "num_workers": 0,
        "eval_episodes": 1,
        "report": False,
    }
    for verbose, name in ((0, "quiet"), (1, "loud")):
        config = Config(**values, verbose=verbose, run_dir=str(tmp_path / name))
        train(config)
        output, errors = capfd.readouterr()
        assert bool(output) == bool(verbose)
        assert errors == ""
    arguments = [f"--{name}={value}" for name, value in values.items()]
    assert main.main([*arguments, "--verbose=0", f"--run_dir={tmp_path / 'command'}"]) == 0
    assert capfd.readouterr() == ("", "")
    assert len(metrics(tmp_path / "quiet")) == len(metrics(tmp_path / "command")) == 2
