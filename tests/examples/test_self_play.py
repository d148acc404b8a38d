"""Connect Four and self-play, of examples/: the rules, repeated episodes, exact resume."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.turn_based import COLUMNS, HEIGHT, ROWS, Game, has_four
from ppo import Callback, Config, load_policy, train
from ppo.envs.env_factories import as_env_name
from ppo.envs.errors import EnvironmentUnavailable
from ppo.run.checkpoint import LAST, load
from tests.running import TINY, assert_same, metrics, run_main

# All 69 lines of four, as sets of (column, row).
LINES = [
    line
    for column in range(COLUMNS)
    for row in range(ROWS)
    for right, up in ((0, 1), (1, 0), (1, 1), (1, -1))
    for line in [{(column + k * right, row + k * up) for k in range(4)}]
    if all(0 <= c < COLUMNS and 0 <= r < ROWS for c, r in line)
]
# Columns from the bottom, of a board that is full without a line; 0 began.
DRAWN = ["001100", "110011", "001100", "110011", "001100", "110011", "001101"]
SELF_PLAY = (
    "--env_name=examples/turn_based.py:Game",
    "--callback=examples/self_play.py:SelfPlay",
    "--callback=tests.examples.test_self_play:Killing",
)
SIZES = (
    *("--preset=none", "--num_envs=4", "--num_steps=32", "--num_minibatches=1", "--num_epochs=1"),
    *("--num_iterations=26", "--checkpoint_every=4", "--eval_episodes=4", "--learning_rate=1e-2"),
)


class Killing(Callback):
    """Kill the trainer in an iteration."""

    def on_iteration(self, run: Any) -> None:
        if run.iteration == int(os.environ.get("KILL_AT", 0)):
            os.kill(os.getpid(), signal.SIGKILL)


def bits(fields: Any) -> int:
    return sum(1 << HEIGHT * column + row for column, row in fields)


def place(game: Game, columns: list[str]) -> None:
    """Fill the columns, from the bottom, with stones of players 0 and 1."""
    for column, stones in enumerate(columns):
        for stone in stones:
            game.drop(int(stone), column)


def game_of(seat: int) -> Game:
    """Return a game that begins in this seat, or after the opponent's first move."""
    game = Game()
    seed = 0
    while not game.reset(seed=seed) or game.seat != seat:
        seed += 1
    return game


def play(game: Game, seed: int) -> list[Any]:
    """Play an episode by moves that the seed determines; return all that the game shows."""
    moves = np.random.default_rng(seed)
    observation, info = game.reset(seed=seed)
    shown = [observation.tolist()]
    ended = False
    while not ended:
        action = moves.choice(np.flatnonzero(info["action_mask"]))
        observation, reward, ended, _, info = game.step(int(action))
        shown += [observation.tolist(), reward]
    return shown


@pytest.fixture(scope="module")
def opponents(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return a checkpoint, and the file of another policy."""
    folder = tmp_path_factory.mktemp("opponents")
    flags = {**TINY, "env_name": as_env_name(Game), "total_steps": 16}
    found = [
        train(Config(**flags, seed=seed, run_dir=str(folder / str(seed)))).checkpoint
        for seed in (1, 2)
    ]
    saved = str(folder / "policy.safetensors")
    load_policy(found.pop(), Game).save(saved)
    return [*found, saved]


def test_four_in_a_line_win_wherever_they_are() -> None:
    assert len(LINES) == 69
    assert all(has_four(bits(line)) for line in LINES)
    assert not any(has_four(bits(sorted(line)[:3])) for line in LINES)
    # From the top of a column to the bottom of the next one is no line.
    assert not has_four(bits([(2, 3), (2, 4), (2, 5), (3, 0)]))
    generator = np.random.default_rng(0)
    found = set()
    for _ in range(1000):
        fields = {(c, r) for c in range(COLUMNS) for r in range(ROWS) if generator.random() < 0.3}
        is_won = any(line <= fields for line in LINES)
        assert has_four(bits(fields)) == is_won
        found.add(is_won)
    assert found == {True, False}


@pytest.mark.parametrize("seat", [0, 1])
def test_a_win_is_worth_one(seat: int) -> None:
    game = game_of(seat)
    game.stones, game.heights = [0, 0], [0] * COLUMNS
    place(game, [str(seat) * 3, str(1 - seat) * 3])
    _, reward, ended, _, info = game.step(0)
    assert (reward, ended, info) == (1, True, {"is_success": True, "drawn": False})


def test_the_opponents_win_costs_one() -> None:
    game = game_of(0)
    # Only column 3 is free for the opponent's answer, after the last stone in column 2.
    place(game, ["110010", "001101", "11001", "111", "110010", "001101", "110010"])
    assert game.action_mask().tolist() == [False, False, True, True, False, False, False]
    assert game.winner is None
    _, reward, ended, _, info = game.step(2)
    assert (reward, ended, info) == (-1, True, {"is_success": False, "drawn": False})


def test_a_full_board_without_a_line_is_a_draw() -> None:
    game = game_of(1)
    game.stones, game.heights = [0, 0], [0] * COLUMNS
    place(game, [*DRAWN[:-1], DRAWN[-1][:-1]])
    assert not game.is_over
    _, reward, ended, _, info = game.step(6)
    assert (reward, ended, info) == (0, True, {"is_success": False, "drawn": True})
    assert sum(game.heights) == COLUMNS * ROWS


def test_a_full_column_is_masked_and_refused() -> None:
    game = game_of(0)
    place(game, ["", "010101"])
    assert game.action_mask().tolist() == [True, False, *[True] * 5]
    with pytest.raises(ValueError, match="column 1 is full"):
        game.step(1)


@pytest.mark.slow
def test_an_episode_depends_on_seed_actions_and_opponents_only(opponents: list[str]) -> None:
    first, other = Game(), Game()
    without = [play(first, seed) for seed in range(20)]
    for game in (first, other):
        game.set_training(opponents=opponents)
    shown = [play(first, seed) for seed in range(20)]
    assert len({str(episode) for episode in shown}) == 20
    assert shown != without
    for seed in (7, 3, 12):  # in another instance, in another order
        assert play(other, seed) == shown[seed]
    drawn = set()
    for seed in range(30):
        first.reset(seed=seed)
        drawn.add((first.seat, first.opponents.index(first.opponent)))
    assert drawn == {(seat, number) for seat in (0, 1) for number in (0, 1)}


@pytest.mark.slow
def test_an_opponent_that_is_missing_or_damaged_is_named(
    tmp_path: Path, opponents: list[str]
) -> None:
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(Path(opponents[0]).read_bytes()[:-1])
    for path in (tmp_path / "none.safetensors", damaged):
        with pytest.raises(EnvironmentUnavailable, match=f"opponents.* {path}.*give another"):
            Game().set_training(opponents=[str(path)])


@pytest.mark.slow
def test_self_play_that_is_killed_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = run_main(*SELF_PLAY, *SIZES, "--num_workers=0", f"--run_dir={whole}")
    assert done.returncode == 0, done.stderr
    assert "games against random play" in done.stdout
    assert "games against its first version" in done.stdout
    flags = (*SELF_PLAY, *SIZES, "--num_workers=1", f"--run_dir={killed}")
    assert run_main(*flags, env={**os.environ, "KILL_AT": "23"}).returncode == -9
    again = run_main(*SELF_PLAY, f"--resume={killed}")
    assert again.returncode == 0, again.stderr
    assert "not exact" not in again.stdout + again.stderr
    assert metrics(killed) == metrics(whole)
    states = [load(folder / "checkpoints" / LAST) for folder in (whole, killed)]
    for state, folder in zip(states, (whole, killed), strict=True):
        assert state["callbacks.SelfPlay.0.versions"] == [10, 20]
        paths = [str(folder / "opponents" / f"{n:06d}.safetensors") for n in (10, 20)]
        assert state.pop("env_attributes") == {"opponents": paths}
        del state["open_episodes.attributes"]  # of the same paths
        del state["config"]["num_workers"]
    assert_same(*states)
    for name in ("000010.safetensors", "000020.safetensors"):
        own = [load(folder / "opponents" / name) for folder in (whole, killed)]
        for state in own:
            del state["config"], state["env_attributes"]
        assert_same(*own)


@pytest.mark.slow
def test_self_play_goes_on_in_a_folder_that_was_moved_but_not_without_an_opponent(
    tmp_path: Path,
) -> None:
    begun, moved = tmp_path / "begun", tmp_path / "moved"
    flags = (*SELF_PLAY, *SIZES, "--num_workers=0")
    done = run_main(*flags, "--num_iterations=12", f"--run_dir={begun}")
    assert done.returncode == 0, done.stderr
    begun.rename(moved)
    done = run_main(*SELF_PLAY, f"--resume={moved}", "--num_iterations=14")
    assert done.returncode == 0, done.stderr
    assert "environments [0, 1, 2, 3] did not repeat their open episode" in done.stderr
    path = moved / "opponents" / "000010.safetensors"
    assert load(moved / "checkpoints" / LAST)["env_attributes"] == {"opponents": [str(path)]}
    path.unlink()
    done = run_main(*SELF_PLAY, f"--resume={moved}", "--num_iterations=16")
    assert done.returncode == 3
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert f"opponents: cannot read checkpoint {path}: No such file" in error
    assert "Traceback" not in done.stderr
