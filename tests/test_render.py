"""The command render, in real processes as a new user would call it."""

import json
from pathlib import Path

import imageio.v3
import pytest

from ppo.run.reader import EPISODES
from ppo.tools.render import find_episode
from tests.running import Call, run_main


def test_render_makes_a_video_of_the_best_episode(cartpole_copy: Path, call: Call) -> None:
    code, shown, errors = call("render", str(cartpole_copy))
    assert (code, errors) == (0, "")
    best = find_episode(cartpole_copy, "best")
    assert (
        f"best episode: return {best['episode_return']:.0f} in {best['episode_length']} steps"
        in shown
    )
    frames = imageio.v3.imread(cartpole_copy / "videos" / f"best-{best['step']}.mp4")
    assert len(frames) == best["episode_length"] + 1


def test_a_video_that_is_there_is_not_made_again(cartpole_copy: Path, call: Call) -> None:
    video = cartpole_copy / "videos" / f"best-{find_episode(cartpole_copy, 'best')['step']}.mp4"
    video.parent.mkdir(exist_ok=True)
    video.write_bytes(b"made before")
    code, out, err = call("render", str(cartpole_copy))
    assert (code, err) == (0, "")
    assert f"video: {video}" in out
    assert video.read_bytes() == b"made before"
    assert call("render", str(cartpole_copy), f"--video={video}")[0] == 2
    assert video.read_bytes() == b"made before"


def test_an_episode_that_does_not_repeat_itself_is_not_shown(
    cartpole_copy: Path, call: Call
) -> None:
    lines = [json.loads(line) for line in (cartpole_copy / EPISODES).read_text().splitlines()]
    for line in lines:
        line["number"] += 1
    (cartpole_copy / EPISODES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, _, err = call("render", str(cartpole_copy), "--episode=worst")
    assert code == 1
    assert (
        "error: CartPole-v1 does not repeat itself: the episode came to (return, length) = [" in err
    )
    assert not list((cartpole_copy / "videos").iterdir())


PONG = (
    "--env_name=PongNoFrameskip-v4 --model=cnn_small --num_envs=4 --num_epochs=1 "
    "--total_steps=10240"
)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["--env_name=LunarLander-v3 --total_steps=200000", PONG])
def test_the_best_episode_of_a_run_is_replayed_to_its_return(line: str, tmp_path: Path) -> None:
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
