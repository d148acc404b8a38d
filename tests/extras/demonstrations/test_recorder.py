"""Recording: what the environment gave and took, whoever acts."""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import ppo
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import ConfigError
from ppo.extras.demonstrations.format import Demonstrations, fit, read_npz
from tests.environments import Counting, Identity, Masked
from tests.running import Call, run_main


def test_a_function_is_recorded(tmp_path: Path) -> None:
    """Observations are (seed, step), rewards repeat the actions."""
    path = tmp_path / "new" / "counting.npz"
    returns = ppo.record(lambda seen: 10 + int(seen[1]) % 5, Counting, 6, path, seed=3)
    found = read_npz(path)
    seeds = [integer_seed(3, Stream.EVALUATION, episode) for episode in range(6)]
    assert found.seeds.tolist() == seeds
    step = 0
    for seed, rows, total in zip(seeds, found.rows, returns, strict=True):
        length = 3 + seed % 2**16 % 7
        wanted = [[seed % 2**16, t] for t in range(length + 1)]
        assert found.observations[""][rows.start : rows.stop].tolist() == wanted
        actions = found.actions[""][step : step + length]
        assert actions.tolist() == [10 + t % 5 for t in range(length)]
        assert found.rewards is not None
        np.testing.assert_array_equal(found.rewards[step : step + length], actions)
        assert total == actions.sum()
        step += length
        assert found.terminations[step - 1] == (seed % 2 == 1)
        assert found.truncations[step - 1] == (seed % 2 == 0)
    assert step == len(found.terminations)


def assert_plays_again(found: Demonstrations, make: Any) -> None:
    """The environment shows the same for these seeds and actions."""
    assert found.rewards is not None
    step = 0
    for seed, rows in zip(found.seeds, found.rows, strict=True):
        env = make()
        shown = [env.reset(seed=int(seed))[0]]
        for _ in range(len(rows) - 1):
            observation, reward, terminated, truncated, _ = env.step(found.actions[""][step])
            shown.append(observation)
            assert reward == found.rewards[step]
            ends = (found.terminations[step], found.truncations[step])
            assert ends == (terminated, truncated)
            step += 1
        np.testing.assert_array_equal(
            np.stack(shown), found.observations[""][rows.start : rows.stop]
        )


@pytest.mark.slow
def test_the_command_records_raw_observations(cartpole_copy: Path, tmp_path: Path) -> None:
    path = tmp_path / "cartpole.npz"
    command = ["evaluate", str(cartpole_copy), "--episodes=5", "--num_envs=2", f"--record={path}"]
    done = run_main(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"demonstrations: {path}" in done.stdout
    found = read_npz(path)
    assert len(found.rows) == 5
    assert_plays_again(found, lambda: gymnasium.make("CartPole-v1"))
    again = run_main(*command)
    assert again.returncode == 2
    assert again.stderr.count("\n") == 1
    assert "nothing is overwritten" in again.stderr


def test_masks_are_recorded_as_the_environment_gives_them(tmp_path: Path) -> None:
    env = Masked()
    ppo.record(lambda seen: int(np.argmax(env.allowed)) - 1, env, 3, tmp_path / "masked.npz")
    found = read_npz(tmp_path / "masked.npz")
    masks = found.action_masks[""]
    assert masks.shape == (18, 4)
    last = np.arange(18) % 6 == 5
    assert masks[last].all()  # nothing follows
    assert (masks[~last].sum(1) == 2).all()
    assert masks[~last][np.arange(15), found.actions[""] + 1].all()


@pytest.mark.parametrize("name", ["Dict", "Tuple", "Grid"])
def test_nested_spaces_are_recorded_by_the_names_of_their_parts(name: str, tmp_path: Path) -> None:
    env = Identity(name, name)
    env.action_space.seed(0)
    taken: list[Any] = []

    def sample(seen: Any) -> Any:
        taken.append(env.action_space.sample())
        return taken[-1]

    ppo.record(sample, env, 2, tmp_path / "x.npz")
    found = fit(read_npz(tmp_path / "x.npz"), env.observation_space, env.action_space)
    assert found.observations.keys() == found.actions.keys()
    if name == "Dict":
        assert {*found.actions} == {"a", "b", "c"}
        np.testing.assert_array_equal(found.actions["b"], [action["b"] for action in taken])
    elif name == "Tuple":
        assert {*found.actions} == {"0", "1.x"}
        np.testing.assert_array_equal(found.actions["1.x"], [action[1]["x"] for action in taken])
    else:
        np.testing.assert_array_equal(found.actions[""], taken)


def test_an_action_outside_of_its_space_is_refused_at_once(tmp_path: Path) -> None:
    for action in (2, 0.5, [0, 1], np.nan):
        with pytest.raises(ValueError, match="actions"):
            ppo.record(lambda seen, action=action: action, "CartPole-v1", 1, tmp_path / "x.npz")
    assert not [*tmp_path.iterdir()]


def test_what_cannot_be_written_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    def never(seen: Any) -> Any:
        raise AssertionError

    (tmp_path / "there.npz").touch()
    (tmp_path / "file").touch()
    for name, words in (
        ("there.npz", "nothing is overwritten"),
        ("x.npy", "ends with .npz"),
        ("file/x.npz", "cannot be written"),
    ):
        with pytest.raises(ConfigError, match=words):
            ppo.record(never, "CartPole-v1", 1, tmp_path / name)
    with pytest.raises(ConfigError, match="leave them out"):
        ppo.record(never, Masked(), 1, tmp_path / "x.npz", frame_skip=2)


def test_a_recording_larger_than_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppo.extras.demonstrations.recorder.physical_memory", lambda: 4000)
    with pytest.raises(ConfigError, match="fewer"):
        ppo.record(lambda seen: 0, "CartPole-v1", 100, tmp_path / "x.npz")


def test_a_person_is_recorded_by_gymnasiums_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who holds the right key for a while, lets go of it, and closes the window."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = pytest.importorskip("pygame")
    from gymnasium.utils.play import play

    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    calls: list[Any] = []

    def press(*transition: Any) -> None:
        calls.append(transition[2])
        if len(calls) == 3:
            pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=ord("d")))
        if len(calls) == 20:
            pygame.event.post(pygame.event.Event(pygame.QUIT))

    with ppo.Recorder(env, tmp_path / "played.npz") as recorder:
        play(recorder, callback=press, keys_to_action={"d": 1}, noop=0, fps=1000, seed=5)
    found = read_npz(tmp_path / "played.npz")
    assert found.actions[""].tolist() == calls
    assert {0, 1} == {*calls}
    assert found.truncations[-1] or found.terminations[-1]
    assert set(found.seeds.tolist()) == {5}


@pytest.mark.slow
def test_a_team_is_not_recorded(tmp_path: Path, call: Call) -> None:
    run = tmp_path / "run"
    flags = "--env_name=tests.teams:Relay --num_envs=3 --num_steps=8 --total_steps=24"
    code, _, err = call(*flags.split(), f"--run_dir={run}", "--eval_episodes=0", "--report=False")
    assert (code, err) == (0, "")
    code, _, err = call(
        "evaluate",
        str(run),
        "--env_name=tests.teams:Relay",
        "--episodes=1",
        f"--record={tmp_path / 'x.npz'}",
    )
    assert code == 2
    assert "team" in err
    assert not os.path.exists(tmp_path / "x.npz")


def test_parts_without_numbers_are_left_out(tmp_path: Path) -> None:
    class Talking(Identity):
        def __init__(self) -> None:
            super().__init__("Box", "Discrete")
            self.observation_space = spaces.Dict(
                {"seen": spaces.Box(-1, 1, (2,)), "heard": spaces.Text(9)}
            )

        def _show(self) -> Any:
            self.bit = 0
            return {"seen": np.zeros(2, np.float32), "heard": "hello"}

    ppo.record(lambda seen: 0, Talking(), 1, tmp_path / "x.npz")
    assert {*read_npz(tmp_path / "x.npz").observations} == {"seen"}
