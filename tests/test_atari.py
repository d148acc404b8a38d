"""Each part of an Atari game's preprocessing, against a scripted emulator."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from ale_py import Action
from gymnasium import spaces

from ppo.config import Config
from ppo.envs.atari import AtariGame, EndOnLifeLoss
from ppo.envs.episodes import WHOLE_EPISODE, RecordEpisode
from ppo.envs.make import EnvMaker


class Emulator(gymnasium.Env):
    """An environment and its emulator, which plays games by a script: the lives after the frame of
    doing nothing with which a game starts, and after each of its frames. A game is over with its
    last frame. The last game is repeated. A game's frame f is worth f."""

    action_space: Any = spaces.Discrete(2)

    def __init__(self, games: Sequence[list[int]], truncates: bool) -> None:
        self.ale, self.games, self.truncates = self, games, truncates
        self.acts: list[Action] = []
        self.game, self.frame, self.num_resets = games[0], -1, 0

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "FIRE"]

    def reset_game(self) -> None:
        self.num_resets += 1
        self.game, self.frame = self.games[min(self.num_resets, len(self.games)) - 1], -1

    def act(self, action: Action) -> int:
        self.acts.append(action)
        if self.game_over():
            return 0  # as ALE does: it waits for a reset
        self.frame += 1
        return self.frame

    def lives(self) -> int:
        return self.game[max(self.frame, 0)]

    def game_over(self, with_truncation: bool = True) -> bool:
        return self.frame == len(self.game) - 1 and (with_truncation or not self.truncates)

    def game_truncated(self) -> bool:
        return self.game_over() and self.truncates

    def getMinimalActionSet(self) -> list[Action]:
        return [Action.NOOP]

    def getScreenDims(self) -> tuple[int, int]:
        return 2, 2

    def getScreenGrayscale(self, screen: Any = None) -> Any:
        """One pixel becomes brighter and one darker, and two are lit in every other frame."""
        screen = np.zeros((2, 2), np.uint8) if screen is None else screen
        lit = 50 * (self.frame % 2)
        screen[:] = [[max(self.frame, 0), 100 - self.frame], [lit, 50 - lit]]
        return screen


def scripted(frame_skip: int, *games: list[int], **more: Any) -> tuple[Any, Emulator]:
    emulator = Emulator(games, more.get("truncates", False))
    return AtariGame(emulator, frame_skip, more.get("stickiness", 0.0), False), emulator


@pytest.fixture
def one_noop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppo.envs.atari.MAX_NOOPS", 1)


def play(env: gymnasium.Env, num_steps: int) -> dict[int, dict[str, Any]]:
    """Return the last infos of episodes, by the steps that ended them."""
    ends = {}
    env.reset(seed=0)
    for step in range(1, num_steps + 1):
        _, _, terminated, truncated, info = env.step(0)
        if terminated or truncated:
            ends[step] = {**info, "truncated": truncated}
            env.reset(seed=step)
    return ends


@pytest.mark.parametrize(
    ("game", "ends"),
    [
        ([3, 3, 2, 2, 1, 1, 0], [2, 4, 6]),
        ([2, 1, 0, 0, 0], [1, 4]),  # not over at once after the last life, as Qbert
        ([1, 2, 1, 0], [2, 3]),  # a life won
        ([0, 0, 0, 0], [3]),  # no lives, as Pong
    ],
)
@pytest.mark.parametrize("truncates", [False, True])
def test_a_life_lost_ends_the_episode_and_not_the_game(one_noop, game, ends, truncates):
    length = len(game) - 1
    env, emulator = scripted(1, game, truncates=truncates)
    found = play(EndOnLifeLoss(RecordEpisode(env)), 2 * length)
    assert [*found] == [*ends, *(length + end for end in ends)]
    assert emulator.num_resets == 1 + 2
    total = length * (length + 1) / 2  # of all lives together
    for step, info in found.items():
        assert info.get(WHOLE_EPISODE) == (None if step % length else (total, length))
        assert info["truncated"] == (truncates and step % length == 0)


def test_returns_of_games_are_sums_of_all_lives_own_rewards(one_noop, monkeypatch):
    emulator = Emulator([[2, 2, 1, 1, 0]], False)
    monkeypatch.setattr(gymnasium, "make", lambda *_, **options: emulator)
    flags: Any = {"frame_skip": 1, "end_on_life_loss": True, "clip_rewards": True}
    env = EnvMaker(Config(env_name="PongNoFrameskip-v4", **flags))()
    found = play(env, 4)
    assert {step: info.get(WHOLE_EPISODE) for step, info in found.items()} == {2: None, 4: (10, 4)}


def test_a_skip_stops_at_game_over_and_shows_the_last_two_frames(one_noop):
    env, emulator = scripted(4, [0] * 7)
    env.reset(seed=0)
    screen, reward, *ended, _ = env.step(0)
    assert (reward, ended) == (1 + 2 + 3 + 4, [False, False])
    assert screen.tolist() == [[4, 97], [50, 50]]
    screen, reward, *ended, _ = env.step(0)
    assert (reward, ended) == (5 + 6, [True, False])
    assert len(emulator.acts) == 1 + 6
    assert screen.tolist() == [[6, 94], [0, 50]]  # nothing in it of frame 3, which was seen last


def test_each_frame_repeats_the_last_ones_action_with_some_probability(one_noop):
    env, emulator = scripted(4, [0] * 100, stickiness=0.25)
    for seed in range(50):
        env.reset(seed=seed)
        for t in range(20):
            env.step(t % 2)
    acts = np.array([act == Action.FIRE for act in emulator.acts])
    acts = acts.reshape(50, 81)[:, 1:].reshape(50, 20, 4)
    wanted = np.arange(20) % 2
    is_held = acts[:, 1:, 0] != wanted[1:]  # where another action is wanted than before
    assert 0.2 < is_held.mean() < 0.3
    assert (acts[:, 1:, 3] != wanted[1:]).mean() < 0.02  # 0.25 to the fourth is 0.004
    assert (acts[:, :, 1:] != acts[:, :, :-1]).sum(2).max() == 1  # once taken, it is kept


def test_a_game_is_rendered():
    kwargs = {"render_mode": "rgb_array"}
    env = EnvMaker(Config(env_name="PongNoFrameskip-v4", env_kwargs=kwargs, image="color"))()
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation, env.render())
