"""Atari games against gymnasium's preprocessing, each part of ours against a scripted emulator."""

from collections.abc import Callable, Sequence
from typing import Any

import ale_py.env
import gymnasium
import numpy as np
import pytest
from ale_py import Action
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from ppo.envs.atari import AtariGame
from ppo.envs.episodes import WHOLE_EPISODE
from ppo.envs.errors import InvalidEnvOutput
from tests.running import make_env

LIFE_LOSS = pytest.mark.parametrize("end_on_life_loss", [False, True], ids=["games", "lives"])
IDS_OF_PONG = "PongNoFrameskip-v4", "Pong-v4", "ALE/Pong-v5"


class NoOps(gymnasium.Wrapper):
    """Starts a game with as many frames of doing nothing as it is told to."""

    count = 0

    def reset(self, **options: Any) -> tuple[np.ndarray, dict]:
        first = self.env.reset(**options)
        for _ in range(self.count):
            self.env.step(0)
        return first


class Reference:
    """Gymnasium's preprocessing, with FIRE and a stack of equal images after each reset."""

    def __init__(self, env_name: str) -> None:
        made = gymnasium.make(env_name, frameskip=1, repeat_action_probability=0)
        self.noops = NoOps(made)
        self.ale = self.noops.unwrapped.ale
        self.stack = FrameStackObservation(
            AtariPreprocessing(self.noops, noop_max=0, frame_skip=4), 4
        )
        self.step, self.meanings = self.stack.step, self.noops.unwrapped.get_action_meanings()

    def new_game(self, num_noops: int, seed: int | None = None) -> np.ndarray:
        self.noops.count = num_noops
        self.stack.reset(seed=seed)
        return self.new_episode()

    def new_episode(self) -> np.ndarray:
        if "FIRE" in self.meanings:
            self.stack.step(self.meanings.index("FIRE"))
        images = self.stack.obs_queue
        images.extend([images[-1]] * 4)
        return np.stack(images)


def assert_same_images(ours: np.ndarray, theirs: np.ndarray) -> None:
    """ours: (84, 84, 4); theirs: (4, 84, 84)."""
    difference = ours.astype(int) - np.moveaxis(theirs, 0, 2)
    assert difference.shape == (84, 84, 4)
    assert np.abs(difference).max() <= 1


@pytest.mark.slow_but_first
@LIFE_LOSS
@pytest.mark.parametrize(
    "env_name", ["BreakoutNoFrameskip-v4", "QbertNoFrameskip-v4", "ALE/Asterix-v5"]
)
def test_500_random_steps_are_those_of_gymnasiums_preprocessing(
    env_name: str, end_on_life_loss: bool
) -> None:
    flags = {"frame_skip": 4, "noop_max": 30, "sticky_actions": 0}
    env = make_env(env_name, **flags, end_on_life_loss=end_on_life_loss)
    reference, ale, random = Reference(env_name), env.unwrapped.ale, np.random.default_rng(0)
    num_fires = 4 * ("FIRE" in reference.meanings)
    observation, _ = env.reset(seed=0)
    assert_same_images(
        observation, reference.new_game(ale.getEpisodeFrameNumber() - num_fires, seed=0)
    )
    losses = games = 0
    for step in range(1, 501):
        action, lives = random.integers(env.action_space.n), reference.ale.lives()
        observation, reward, terminated, truncated, _ = env.step(action)
        images, *expected, game_over, game_truncated, _ = reference.step(action)
        lost = 0 < reference.ale.lives() < lives
        assert [reward] == expected
        assert (terminated, truncated) == (game_over or (lost and end_on_life_loss), game_truncated)
        if not game_over:  # at game over, gymnasium's screen is an old one
            assert_same_images(observation, images)
        if terminated:
            observation, _ = env.reset(seed=step)
            noops = ale.getEpisodeFrameNumber() - num_fires
            assert_same_images(
                observation, reference.new_game(noops) if game_over else reference.new_episode()
            )
        assert ale.getEpisodeFrameNumber() == reference.ale.getEpisodeFrameNumber()
        losses, games = losses + lost, games + game_over
    assert losses > 0
    assert games > 0


def test_after_an_episode_that_was_cut_off_a_new_game_begins() -> None:
    env = make_env("PongNoFrameskip-v4", frame_skip=4, noop_max=0, end_on_life_loss=True)
    frames = []
    for _ in range(2):
        env.reset(seed=0)
        frames.append(env.unwrapped.ale.getEpisodeFrameNumber())
        for _ in range(5):
            env.step(0)
    assert frames[0] == frames[1]


class Emulator:
    """Plays games by a script: the lives at each game's start and after each of its frames.

    A game is over with its last frame. The last game is repeated. A game's frame f is worth f."""

    def __init__(self, games: Sequence[list[int]], truncates: bool) -> None:
        self.games, self.truncates, self.acts, self.num_resets = games, truncates, [], 0

    def reset_game(self) -> None:
        self.num_resets += 1
        self.game, self.frame = self.games[min(self.num_resets, len(self.games)) - 1], 0

    def act(self, action: Action) -> int:
        self.acts.append(action)
        if self.game_over():
            return 0  # as ALE does: it waits for a reset
        self.frame += 1
        return self.frame

    def lives(self) -> int:
        return self.game[self.frame]

    def game_over(self, with_truncation: bool = True) -> bool:
        return self.frame == len(self.game) - 1 and (with_truncation or not self.truncates)

    def game_truncated(self) -> bool:
        return self.game_over() and self.truncates

    def getScreenDims(self) -> tuple[int, int]:
        return 2, 2

    def getScreenGrayscale(self, screen: np.ndarray) -> None:
        """One pixel becomes brighter and one darker, and two are lit in every other frame."""
        screen[:] = [
            [self.frame, 100 - self.frame],
            [50 * (self.frame % 2), 50 * (1 - self.frame % 2)],
        ]


class Console(gymnasium.Env):
    """The environment of ale_py, around a scripted emulator."""

    observation_space = spaces.Box(0, 255, (2, 2, 3), np.uint8)

    def __init__(self, emulator: Emulator, meanings: Sequence[str]) -> None:
        self.ale, self.meanings, self.seeds = emulator, list(meanings), []
        self.action_space = spaces.Discrete(len(meanings))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[None, dict]:
        self.seeds.append(seed)
        self.ale.reset_game()
        return None, {}

    def get_action_meanings(self) -> list[str]:
        return self.meanings


def scripted_game(
    frame_skip: int, *games: list[int], noop_max: int = 0, stickiness: float = 0.0
) -> tuple[AtariGame, Emulator]:
    emulator = Emulator(games, truncates=False)
    console = Console(emulator, ["NOOP", "LEFT"])
    return AtariGame(console, frame_skip, noop_max, stickiness), emulator


@pytest.fixture
def make_scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[gymnasium.Env, Emulator]]:
    """Makes a scripted game as make_env makes a real one."""

    def make(
        *games: list[int], fire: bool = False, truncates: bool = False, **values: Any
    ) -> tuple[gymnasium.Env, Emulator]:
        emulator = Emulator(games, truncates)
        emulator.getMinimalActionSet = lambda: [Action.NOOP, Action.FIRE if fire else Action.UP]
        console = Console(emulator, ["NOOP", "FIRE"] if fire else ["NOOP", "UP"])
        monkeypatch.setattr(ale_py.env, "Scripted", lambda **_: console, raising=False)
        monkeypatch.setitem(
            gymnasium.registry, "Scripted-v0", EnvSpec("Scripted-v0", "ale_py.env:Scripted")
        )
        return make_env("Scripted-v0", **{"noop_max": 0, "sticky_actions": 0, **values}), emulator

    return make


def play(env: gymnasium.Env, num_steps: int) -> dict[int, tuple[bool, bool, dict]]:
    """How episodes ended, after the step in which they did: terminated, truncated and info."""
    ends: dict[int, tuple[bool, bool, dict]] = {}
    env.reset(seed=0)
    for step in range(1, num_steps + 1):
        _, _, terminated, truncated, info = env.step(0)
        if terminated or truncated:
            ends[step] = terminated, truncated, info
            env.reset(seed=step)
    return ends


def test_without_skipped_frames_each_is_seen_alone() -> None:
    env, _ = scripted_game(1, [0] * 20)
    env.reset(seed=0)
    assert env.step(0)[0].tolist() == [[1, 99], [50, 0]]
    assert env.step(0)[0].tolist() == [[2, 98], [0, 50]]


def noops(env: AtariGame, seeds: Sequence[int]) -> list[int]:
    counts = []
    for seed in seeds:
        env.reset(seed=seed)
        counts.append(env.ale.frame)
    return counts


def test_games_start_with_1_to_30_frames_of_doing_nothing_by_their_seed() -> None:
    env, emulator = scripted_game(4, [0] * 100, noop_max=30)
    counts = noops(env, range(300))
    assert set(counts) == set(range(1, 31))
    assert set(emulator.acts) == {Action.NOOP}
    assert noops(scripted_game(4, [0] * 100, noop_max=30)[0], range(300)) == counts


def test_a_game_that_ends_while_nothing_is_done_starts_anew() -> None:
    env, emulator = scripted_game(4, [0] * 4, noop_max=30)
    before_the_end = {0, 1, 2}
    assert set(noops(env, range(50))) == before_the_end
    assert emulator.num_resets > 50


def test_each_frame_repeats_the_last_ones_action_with_some_probability() -> None:
    env, emulator = scripted_game(4, [0] * 100, stickiness=0.25)
    for seed in range(50):
        env.reset(seed=seed)
        for t in range(20):
            env.step(t % 2)
    acts = np.array([act == Action.LEFT for act in emulator.acts]).reshape(50, 20, 4)
    wanted = np.arange(20) % 2
    is_held = acts[:, 1:, 0] != wanted[1:]  # where another action is wanted than before
    assert 0.2 < is_held.mean() < 0.3
    assert (acts[:, 1:, 3] != wanted[1:]).mean() < 0.02  # 0.25 to the fourth is 0.004
    assert (acts[:, :, 1:] != acts[:, :, :-1]).sum(2).max() == 1  # once taken, it is kept


class NoReward(gymnasium.RewardWrapper):
    """Spoils every reward."""

    def reward(self, reward: Any) -> float:
        return float("nan")


def test_what_a_wrapper_makes_of_a_game_is_checked() -> None:
    env = make_env("PongNoFrameskip-v4", frame_skip=4, wrapper=["tests.envs.test_atari:NoReward"])
    with pytest.raises(InvalidEnvOutput, match="its reward is nan"):
        env.reset(seed=0)  # which presses FIRE


@pytest.mark.parametrize(
    ("game", "ends"),
    [
        ([3, 3, 2, 2, 1, 1, 0], [2, 4, 6]),
        ([2, 1, 0, 0, 0], [1, 4]),  # not over at once after the last life, as Qbert
        ([1, 2, 1, 0], [2, 3]),  # a life won
        ([0, 0, 0, 0], [3]),  # no lives, as Pong
    ],
)
def test_a_life_lost_ends_the_episode_and_not_the_game(
    make_scripted: Any, game: list[int], ends: list[int]
) -> None:
    length = len(game) - 1
    env, emulator = make_scripted(game, end_on_life_loss=True)
    assert list(play(env, 2 * length)) == [*ends, *(length + end for end in ends)]
    assert emulator.num_resets == 1 + 2
    env, emulator = make_scripted(game, end_on_life_loss=False)
    assert list(play(env, 2 * length)) == [length, 2 * length]
    assert emulator.num_resets == 1 + 2


def test_the_return_reported_is_that_of_all_lives_together(make_scripted: Any) -> None:
    env, _ = make_scripted([3, 3, 2, 2, 1, 1, 0], end_on_life_loss=True)
    infos = {end: info for end, (_, _, info) in play(env, 12).items()}
    reports = {end: info[WHOLE_EPISODE] for end, info in infos.items() if WHOLE_EPISODE in info}
    assert reports == {6: (1 + 2 + 3 + 4 + 5 + 6, 6), 12: (1 + 2 + 3 + 4 + 5 + 6, 6)}


def test_the_return_reported_contains_what_firing_has_earned(make_scripted: Any) -> None:
    env, _ = make_scripted([2, 2, 1, 1, 1, 0], fire=True, end_on_life_loss=True)
    ends = play(env, 3)  # fire, a life, fire, two steps
    assert list(ends) == [1, 3]
    assert ends[3][2][WHOLE_EPISODE][0] == 1 + 2 + 3 + 4 + 5


def test_a_game_cut_short_by_the_emulator_is_truncated(make_scripted: Any) -> None:
    env, emulator = make_scripted([3, 3, 3, 3], truncates=True, end_on_life_loss=True)
    ends = play(env, 6)
    assert {end: how[:2] for end, how in ends.items()} == {3: (False, True), 6: (False, True)}
    assert emulator.num_resets == 1 + 2


def test_a_game_that_firing_ends_is_reported_by_the_next_step(make_scripted: Any) -> None:
    env, emulator = make_scripted([1, 0], [1, 1, 1, 0], fire=True, end_on_life_loss=True)
    ends = play(env, 3)
    assert list(ends) == [1, 3]
    assert ends[1][2][WHOLE_EPISODE][0] == 1
    assert ends[3][2][WHOLE_EPISODE][0] == 1 + 2 + 3
    assert emulator.num_resets == 3


def test_if_firing_costs_a_life_the_game_continues(make_scripted: Any) -> None:
    env, emulator = make_scripted([3, 2, 2, 2, 1, 1, 0], fire=True, end_on_life_loss=True)
    assert list(play(env, 3)) == [3]
    assert emulator.num_resets == 1


def test_a_step_is_four_frames_whatever_frames_the_id_skips() -> None:
    for env_name in IDS_OF_PONG:
        env = make_env(env_name, frame_skip=4)
        env.reset(seed=0)
        before = env.unwrapped.ale.getEpisodeFrameNumber()
        env.step(0)
        assert env.unwrapped.ale.getEpisodeFrameNumber() == before + 4


def test_actions_stick_as_the_flag_says_or_else_as_the_id_does() -> None:
    for env_name, values, expected in (
        ("PongNoFrameskip-v4", {}, 0),
        ("ALE/Pong-v5", {}, 0.25),
        ("ALE/Pong-v5", {"sticky_actions": 0.1}, 0.1),
    ):
        env = make_env(env_name, **values)
        assert env.unwrapped.stickiness == expected
        assert env.unwrapped.ale.getFloat("repeat_action_probability") == 0


def test_all_18_actions_are_there_only_if_asked_for() -> None:
    for env_name in IDS_OF_PONG:
        whole = {"full_action_space": True}
        for values, number in (({}, 6), (whole, 18), ({"env_kwargs": whole}, 18)):
            env = make_env(env_name, **values)
            assert env.action_space == spaces.Discrete(number)
            assert len(set(env.unwrapped.actions)) == number


def test_the_same_seed_leads_to_the_same_observations() -> None:
    def observed(seed: int) -> np.ndarray:
        env = make_env("PongNoFrameskip-v4", frame_skip=4, noop_max=0, sticky_actions=0.25)
        env.reset(seed=seed)
        return np.array([env.step(number % 6)[0].copy() for number in range(100)])

    np.testing.assert_array_equal(observed(7), observed(7))
    assert not np.array_equal(observed(8), observed(7))


def test_a_skip_stops_at_game_over() -> None:
    env, emulator = scripted_game(4, [0] * 7)
    env.reset(seed=0)
    assert env.step(0)[2:4] == (False, False)
    screen, reward, *ended, _ = env.step(0)
    assert ended == [True, False]
    assert len(emulator.acts) == 6
    assert reward == 5 + 6
    assert screen.tolist() == [[6, 94], [0, 50]]  # nothing in it of frame 3, which was seen last


def test_the_screen_and_lives_after_a_reset_are_those_after_doing_nothing() -> None:
    env, emulator = scripted_game(4, list(range(9, -1, -1)), noop_max=5)
    for seed in range(10):
        screen, info = env.reset(seed=seed)
        assert screen[0].tolist() == [emulator.frame, 100 - emulator.frame]
        assert info["lives"] == 9 - emulator.frame
