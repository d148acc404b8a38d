"""What is done with a run once there is one, by main.py in real processes, as a new user would."""

import json
import shutil
from pathlib import Path
from typing import Any

import imageio.v3
import numpy as np
import pytest

import main
from ppo import load_policy
from ppo.envs.episodes import PlayedEpisode
from ppo.run.highlights import EPISODES, EpisodeHighlights, find_episode
from tests.running import run_main

CARTPOLE = (
    *(
        "--env_name=CartPole-v1",
        "--preset=none",
        "--num_envs=4",
        "--num_steps=64",
        "--num_workers=2",
    ),
    *("--total_steps=5120", "--learning_rate=1e-5", "--checkpoint_every=5", "--eval_episodes=0"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run on CartPole."""
    folder = tmp_path_factory.mktemp("runs") / "cartpole"
    done = run_main(*CARTPOLE, f"--run_dir={folder}")
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """Another folder with the same in it."""
    return Path(shutil.copytree(run, tmp_path / "run", symlinks=True))


def call(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    """A command in this process: its exit code, and what it said."""
    code = main.main(arguments)
    return code, *capsys.readouterr()


def episodes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / EPISODES).read_text().splitlines()]


def test_an_evaluation_is_that_of_the_policy_and_is_added_to_a_file(copy: Path) -> None:
    for flags in (["--episodes=12"], ["--episodes=5", "--stochastic", "--seed=3", "--num_envs=2"]):
        done = run_main("evaluate", str(copy), *flags)
        assert (done.returncode, done.stderr) == (0, "")
    first, second = json.loads((copy / "evaluation.json").read_text())
    checkpoint = copy / "checkpoints" / "000000005120.safetensors"
    expected = load_policy(checkpoint).evaluate(12)
    assert {name: first[name] for name in expected} == expected
    assert (first["checkpoint"], first["seed"], first["deterministic"]) == (
        str(checkpoint),
        0,
        True,
    )
    assert first["median"] == np.median(expected["returns"])
    low, high = first["interval_95"]
    assert low <= first["mean"] <= high
    assert (second["episodes"], second["deterministic"], second["seed"]) == (5, False, 3)
    assert second["returns"] != first["returns"][:5]


def test_a_run_is_found_by_its_name_and_a_checkpoint_by_its_file(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(copy.parent)
    (copy.parent / "runs").mkdir()
    copy.rename(copy.parent / "runs" / "named")
    checkpoints = Path("runs/named/checkpoints")
    for name, step in (
        ("named", 5120),
        (str(checkpoints / "last.safetensors"), 5120),
        (str(sorted(checkpoints.glob("0*"))[0]), 2560),
    ):
        code, out, err = call(capsys, "evaluate", name, "--episodes=1", "--output=new.json")
        assert (code, err) == (0, "")
        entry = json.loads(Path("new.json").read_text())[-1]
        assert Path(entry["checkpoint"]).resolve().stem == f"{step:012d}"
        assert entry["interval_95"] is None
        assert f"return {entry['mean']:.1f}" in out


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_shows_every_step(run: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    done = run_main(
        "evaluate", str(run), "--episodes=2", f"--video={path}", f"--output={tmp_path / 'e.json'}"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"video: {path}" in done.stdout
    (entry,) = json.loads((tmp_path / "e.json").read_text())
    frames = imageio.v3.imread(path, index=None if suffix == ".mp4" else ...)
    assert frames.shape[1:] == (400, 600, 3)
    if suffix == ".mp4":  # a gif joins frames that are alike
        assert len(frames) == sum(entry["lengths"]) + 2
        assert imageio.v3.immeta(path)["codec"] == "h264"
    assert len(np.unique(frames[:, ::20, ::20].reshape(len(frames), -1), axis=0)) > 5  # it moves
    assert [file.name for file in tmp_path.glob(".tmp-*")] == []


def test_the_best_median_and_worst_episodes_are_noted_and_come_to_the_same_return_again(
    copy: Path,
) -> None:
    noted = episodes(copy)
    assert [(episode["kind"], episode["step"]) for episode in noted] == [
        (kind, step) for step in (1280, 2560, 3840, 5120) for kind in ("best", "median", "worst")
    ]
    assert len((copy / EPISODES).read_bytes()) < 10_000
    policy = load_policy(copy / "checkpoints" / "last.safetensors")
    for episode in noted:
        assert episode["episode_return"] == episode["episode_length"]
        kept = find_episode(copy, episode["kind"])
        assert len(kept["actions"]) == kept["episode_length"]
        policy.replay(kept)
    best, worst = (find_episode(copy, kind)["episode_return"] for kind in ("best", "worst"))
    assert best == max(episode["episode_return"] for episode in noted)
    assert worst == min(episode["episode_return"] for episode in noted)


def test_render_makes_a_video_of_the_best_episode(copy: Path) -> None:
    done = run_main("render", str(copy))
    assert (done.returncode, done.stderr) == (0, "")
    best = find_episode(copy, "best")
    assert (
        f"best episode: return {best['episode_return']:.0f} in {best['episode_length']} steps"
        in done.stdout
    )
    frames = imageio.v3.imread(copy / "videos" / f"best-{best['step']}.mp4")
    assert len(frames) == best["episode_length"] + 1


def test_an_episode_that_does_not_repeat_itself_is_not_shown(
    copy: Path, capsys: pytest.CaptureFixture
) -> None:
    lines = episodes(copy)
    for line in lines:
        line["number"] += 1
    (copy / EPISODES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, _, err = call(capsys, "render", str(copy), "--episode=worst")
    assert code == 1
    assert (
        "error: CartPole-v1 does not repeat itself: the episode came to (return, length) = [" in err
    )
    assert not list((copy / "videos").iterdir())


PONG = "--env_name=PongNoFrameskip-v4 --model=cnn_small --num_envs=4 --num_epochs=1 --total_steps=10240"


@pytest.mark.slow
@pytest.mark.parametrize("line", ["--env_name=LunarLander-v3 --total_steps=200000", PONG])
def test_the_best_episode_of_a_run_comes_to_its_return_again(line: str, tmp_path: Path) -> None:
    done = run_main(
        *line.split(), "--eval_episodes=0", "--checkpoint_every=5", f"--run_dir={tmp_path / 'run'}"
    )
    assert done.returncode == 0, done.stderr
    for kind in ("best", "median", "worst"):
        done = run_main("render", str(tmp_path / "run"), f"--episode={kind}")
        assert (done.returncode, done.stderr) == (0, "")
        assert (
            f"return {find_episode(tmp_path / 'run', kind)['episode_return']:.6g} in" in done.stdout
        )


def episode(episode_return: float, num_steps: int) -> PlayedEpisode:
    return PlayedEpisode(episode_return, num_steps, 0, 0, np.zeros((num_steps, 1)))


def test_of_episodes_with_very_many_steps_only_those_worth_seeing_are_kept() -> None:
    lengths, played = (3, 1, 4, 5, 9, 2, 6), EpisodeHighlights(most_steps=30)
    played.add([episode(float(x), x) for x in lengths])
    assert [one.episode_return for one in played.episodes] == [*lengths]
    played.add([episode(7.0, 1)])
    assert [one.episode_return for one in played.episodes] == [9, 5, 1]
    two = EpisodeHighlights(most_steps=3)
    two.add([episode(float(x), x) for x in (3, 4)])
    assert len(two.episodes) == 2  # neither of which is kept twice


def test_the_best_and_the_worst_episode_outlast_all_between_them() -> None:
    played = EpisodeHighlights(most_steps=150)
    for x in (5, 9, 1, 6, 4, 5, 7):
        played.add([episode(float(x), 100)])
        assert len(played.episodes) <= 3
    lines = [json.loads(line) for line in played.to_json_lines(700).splitlines()]
    assert [(line["kind"], line["episode_return"]) for line in lines] == [
        ("best", 9),
        ("median", 7),
        ("worst", 1),
    ]


def test_a_line_that_was_torn_is_passed_over(copy: Path) -> None:
    with (copy / EPISODES).open("a") as file:
        file.write('{"kind": "be')
    assert find_episode(copy, "best")["kind"] == "best"


def test_nothing_is_noted_of_no_episodes() -> None:
    assert EpisodeHighlights().to_json_lines(5) == ""


def test_runs_are_plotted(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name in ("one.png", "one.svg"):
        assert call(capsys, "plot", str(run), f"--output={tmp_path / name}") == (
            0,
            f"picture: {tmp_path / name}\n",
            "",
        )
    assert imageio.v3.imread(tmp_path / "one.png").std() > 10
    assert b"approx_kl" not in (tmp_path / "one.svg").read_bytes()


WRONG = {
    "evaluat RUN": "evaluat is no command: did you mean evaluate?",
    "fly": "fly is no command: give one of train, check, evaluate, export, plot, render, report, or flags only",
    "evaluate": "the following arguments are required: RUN",
    "evaluate RUN RUN": "unknown flag RUN: see --help",
    "evaluate nowhere": "nowhere: there is no such run or checkpoint; ",
    "evaluate RUN --episodes=0": "--episodes=0: give a whole number from 1",
    "evaluate RUN --video=out.avi": "--video=out.avi: give a name that ends with .mp4 or .gif",
    "evaluate RUN --video=RUN/metrics.csv": "--video=RUN/metrics.csv: give a name that ends with .mp4 or .gif",
    "evaluate RUN --episode=2": "unknown flag --episode: did you mean --episodes?",
    "evaluate RUN --output=RUN/config.json --episodes=1": "--output=RUN/config.json cannot be added to (it is no list)",
    "evaluate RUN --render=human --video=out.mp4": "--render=human and --video: give one of them",
    "evaluate RUN --video=RUN/metrics.csv/out.mp4": "--video=RUN/metrics.csv/out.mp4 cannot be written to (",
    "render RUN --episode=last": "--episode=last: give best or median or worst",
    "render RUN/checkpoints --episode=best": "no checkpoint in RUN/checkpoints/checkpoints can be read",
    "plot": "the following arguments are required: RUNS",
    "plot nowhere": "nowhere is no run that can be plotted ",
    "plot RUN --output=curve.pdf": "--output=curve.pdf: give a name that ends with .png or .svg",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_is_answered_by_a_sentence(
    line: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(copy.parent)
    copy.rename("RUN")
    before = {path: path.read_bytes() for path in Path("RUN").rglob("*") if path.is_file()}
    code, out, err = call(capsys, *line.split())
    assert code == (3 if "checkpoints" in line else 2)
    assert out == ""
    assert err.startswith(f"error: {WRONG[line]}")
    assert err.count("\n") == 1
    assert {path: path.read_bytes() for path in Path("RUN").rglob("*") if path.is_file()} == before
