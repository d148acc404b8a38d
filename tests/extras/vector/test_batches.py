"""Batches of environments: one interface for all kinds of vector environments."""

import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from ppo.envs.errors import EnvironmentUnavailable, InvalidEnvOutput
from ppo.envs.infos import info_of
from ppo.extras.checks.batches import CheckBatch
from ppo.extras.vector.adapters import adapt
from ppo.extras.vector.batches import Batch, MaskedReset, NextStep, SameStep

N = 3
LIMIT = 15


def cartpole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", max_episode_steps=LIMIT)


def seed_of(column: int, episode: int) -> int:
    return int(100 * column + episode)


def play(batch: Batch, num_steps: int, limit: int | None = None) -> list[Any]:
    """What a batch shows by seeds and actions that depend on column, episode and step only."""
    episodes = np.zeros(N, int)
    rng = np.random.default_rng(5)
    shown: list[Any] = [np.array(batch.reset([seed_of(i, 0) for i in range(N)])[0])]
    for _ in range(num_steps):
        *result, _ = batch.step(rng.integers(0, 2, N))
        shown += [np.array(x) for x in result]
        ended = result[2] | result[3]
        if ended.any():
            episodes[ended] += 1
            seeds = [seed_of(i, episodes[i]) for i in np.flatnonzero(ended)]
            shown.append(batch.restart(ended, seeds)[0])
    return shown


class Singles(Batch):
    """The definition: a list of environments, reset one by one."""

    def __init__(self, envs: list[gymnasium.Env]) -> None:
        self.envs = envs

    def reset(self, seeds: Any) -> Any:
        pairs = zip(self.envs, seeds, strict=True)
        self.last = np.stack([env.reset(seed=seed)[0] for env, seed in pairs])
        return self.last, {}

    def step(self, actions: Any) -> Any:
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        observations, rewards, terminations, truncations, _ = zip(*results, strict=True)
        self.last = np.stack(observations)
        ends = np.array(terminations)
        return self.last, np.array(rewards), ends, np.array(truncations) & ~ends, {}

    def restart(self, ended: Any, seeds: Any) -> Any:
        self.last = self.last.copy()
        for i, seed in zip(np.flatnonzero(ended), seeds, strict=True):
            self.last[i] = self.envs[i].reset(seed=seed)[0]
        return self.last, {}


def assert_same(shown: list[Any], expected: list[Any]) -> None:
    assert len(shown) == len(expected)
    for one, other in zip(shown, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_sync_vector_env_is_the_same_as_single_environments(mode: Any) -> None:
    batch = adapt(SyncVectorEnv([cartpole] * N, copy=False, autoreset_mode=mode))
    assert type(batch) is MaskedReset
    assert batch.present is None
    shown = play(batch, 60)
    assert_same(shown, play(Singles([cartpole() for _ in range(N)]), 60))
    assert any(x.dtype == bool and x.any() for x in shown[3::5])


def test_entry_point_has_dead_rows() -> None:
    env = gymnasium.make_vec(
        "CartPole-v1", N, vectorization_mode="vector_entry_point", max_episode_steps=LIMIT
    )
    batch = adapt(env)
    assert type(batch) is NextStep
    batch.reset([1, 2, 3])
    ended = np.zeros(N, bool)
    while not ended.any():
        last, _, terminations, truncations, _ = batch.step(np.ones(N, int))
        ended = terminations | truncations
    seen, _ = batch.restart(ended, [0] * int(ended.sum()))
    np.testing.assert_array_equal(seen, last)
    np.testing.assert_array_equal(batch.present, ~ended)
    first, rewards, terminations, truncations, _ = batch.step(np.ones(N, int))
    assert (np.abs(first[ended]) <= 0.05).all()
    assert (np.abs(last[ended]) > 0.05).any(axis=1).all()
    np.testing.assert_array_equal(rewards, ~ended)
    assert not (terminations | truncations)[ended].any()
    assert batch.present is not None
    assert batch.present.all()


class Counter:
    """A world of torch tensors in SAME_STEP: column i counts its steps, and ends after i + 2.

    Column 0 terminates, others are truncated. All tensors are reused, as simulators do it."""

    num_envs = N
    single_observation_space = gymnasium.spaces.Dict(
        {"policy": gymnasium.spaces.Box(-np.inf, np.inf, (2,))}
    )
    single_action_space = gymnasium.spaces.Box(-1, 1, (1,))
    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self, final: str) -> None:
        """final: the form of the last observations."""
        self.final = final
        self.column = torch.arange(N)
        self.seen = torch.zeros(N, 2)
        self.ends = torch.zeros(2, N, dtype=torch.bool)
        self.reward = torch.zeros(N)

    def reset(self, seed: int) -> Any:
        self.seen[:, 0] = self.column
        self.seen[:, 1] = 0
        return {"policy": self.seen}, {"log": {"loss": 0.5}}

    def step(self, actions: torch.Tensor) -> Any:
        assert isinstance(actions, torch.Tensor)
        self.reward[:] = actions[:, 0]
        self.seen[:, 1] += 1
        ended = self.seen[:, 1] >= self.column + 2
        self.ends[0] = ended & (self.column == 0)
        self.ends[1] = ended
        infos = self.infos(ended)
        self.seen[ended, 1] = 0
        return {"policy": self.seen}, self.reward, self.ends[0], self.ends[1], infos

    def infos(self, ended: torch.Tensor) -> dict[str, Any]:
        last: Any = {"policy": self.seen.clone()}
        infos = {"final_info": {"count": self.seen[:, 1].clone()}, "_final_info": ended.clone()}
        if self.final == "none" or not ended.any():
            return infos if ended.any() else {"count": self.seen[:, 1].clone()}
        last["policy"][~ended] = -1  # what was left there by earlier episodes
        if self.final == "dense":
            return {**infos, "final_obs": last}
        if self.final == "dense with mask":
            stale = torch.ones(N, dtype=torch.bool)
            return {**infos, "final_observation": last, "_final_observation": stale}
        rows = [{"policy": last["policy"][i]} if ended[i] else None for i in range(N)]
        return {**infos, "final_obs": rows}


def count(num_steps: int) -> Iterator[tuple[list[int], list[bool], list[int]]]:
    """The definition of Counter: what actions led to, what ended, and what came next."""
    counts = [0] * N
    for _ in range(num_steps):
        led_to = [number + 1 for number in counts]
        ended = [number >= i + 2 for i, number in enumerate(led_to)]
        counts = [0 if end else number for number, end in zip(led_to, ended, strict=True)]
        yield led_to, ended, counts


@pytest.mark.parametrize("final", ["dense", "dense with mask", "list"])
def test_same_step_returns_last_and_first_observations(final: str) -> None:
    batch = adapt(Counter(final))
    assert type(batch) is SameStep
    batch.reset([1] * N)
    actions = np.array([[0.5], [0.0], [-0.5]], np.float32)
    for led_to, ended, next_counts in count(24):
        observations, rewards, terminations, truncations, infos = batch.step(actions)
        np.testing.assert_array_equal(rewards, actions[:, 0])
        np.testing.assert_array_equal(terminations, np.array(ended) & (np.arange(N) == 0))
        np.testing.assert_array_equal(truncations, np.array(ended) & (np.arange(N) != 0))
        if any(ended):
            first, first_infos = batch.restart(np.array(ended), [0] * sum(ended))
            assert first["policy"][:, 1].tolist() == next_counts
            assert not any("final" in key for key in first_infos)
        for i in range(N):
            assert not ended[i] or info_of(infos, i, N) == {"count": led_to[i]}
        assert observations["policy"].tolist() == [[i, led_to[i]] for i in range(N)]
    assert batch.note == ""


def test_without_last_observations_those_before_are_used_and_noted() -> None:
    batch = adapt(Counter("none"))
    batch.reset([1] * N)
    before = [0] * N
    actions = np.zeros((N, 1), np.float32)
    for step, (led_to, ended, next_counts) in enumerate(count(24)):
        observations, _, _, truncations, _ = batch.step(actions)
        expected = [before[i] if ended[i] else led_to[i] for i in range(N)]
        assert observations["policy"][:, 1].tolist() == expected
        before = next_counts
        assert bool(batch.note) == (truncations.any() or step > 2)
    assert "not exact" in batch.note


def test_last_observations_that_stop_coming_are_refused() -> None:
    world = Counter("dense")
    batch = adapt(world)
    batch.reset([1] * N)
    for _ in range(2):
        batch.step(np.zeros((N, 1), np.float32))
    world.final = "none"
    with pytest.raises(InvalidEnvOutput, match=r"no last observation of columns \[1\]"):
        batch.step(np.zeros((N, 1), np.float32))


def test_nested_observations_and_actions() -> None:
    class Nested(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict(
            {
                "pair": gymnasium.spaces.Tuple(
                    (gymnasium.spaces.Discrete(99), gymnasium.spaces.Box(0, 99, (2,)))
                ),
                "text": gymnasium.spaces.Text(9),
            }
        )
        action_space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(9)})

        def show(self) -> Any:
            pair = (self.count, np.full(2, self.count, np.float32))
            return {"pair": pair, "text": "a" * self.count}

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.count = 1
            return self.show(), {"seed": {"is": seed}}

        def step(self, action: Any) -> Any:
            self.count += int(action["a"])
            return self.show(), 1, self.count > 5, False, {}

    batch = adapt(SyncVectorEnv([Nested] * N, autoreset_mode=AutoresetMode.SAME_STEP))
    observations, infos = batch.reset([7, 8, 9])
    assert [info_of(infos, i, N) for i in range(N)] == [{"seed": {"is": 7 + i}} for i in range(N)]
    last, _, terminations, _, _ = batch.step({"a": np.array([1, 5, 6])})
    assert terminations.tolist() == [False, True, True]
    assert last["pair"][0].tolist() == [2, 6, 7]
    assert last["pair"][1].tolist() == [[2, 2], [6, 6], [7, 7]]
    observations, infos = batch.restart(terminations, [3, 4])
    assert observations["pair"][0].tolist() == [2, 1, 1]
    assert observations["pair"][1].tolist() == [[2, 2], [1, 1], [1, 1]]
    assert [info_of(infos, i, N) for i in range(N)] == [
        {},
        {"seed": {"is": 3}},
        {"seed": {"is": 4}},
    ]


def test_info_of_a_column() -> None:
    infos = {
        "x": np.array([1, 2, 3]),
        "y": np.array([5, 0, 0]),
        "_y": np.array([True, False, False]),
        "words": ["a", "b", "c"],
        "abc": "abc",
        "log": {"loss": 0.5},
        "mean": np.float64(2),
        "other": np.zeros(7),
        "env_id": np.arange(3),
        "players": {"env_id": np.arange(3)},
        "final_obs": np.array([None, None, np.ones(2)], object),
        "final_info": np.array([None, None, {"z": 9}], object),
    }
    assert info_of(infos, 0, N) == {"x": 1, "y": 5, "words": "a"}
    assert info_of(infos, 1, N) == {"x": 2, "words": "b"}
    assert info_of(infos, 2, N) == {"z": 9}


class Replies:
    """Returns what it is told to."""

    num_envs = 2
    single_observation_space: Any = gymnasium.spaces.Box(-1, 1, (3,))
    single_action_space = gymnasium.spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self, reset: Any, step: Any = None) -> None:
        self.replies = {"reset": reset, "step": step}

    def reset(self, seed: int) -> Any:
        return self.replies["reset"]

    def step(self, actions: Any) -> Any:
        return self.replies["step"]


def test_worlds_that_do_not_fit() -> None:
    entry_point = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    with pytest.raises(EnvironmentUnavailable, match="--max_episode_steps=9 cannot be kept"):
        adapt(entry_point, max_episode_steps=9)
    with pytest.raises(EnvironmentUnavailable, match="is a batch of 2 environments, not of 3"):
        adapt(entry_point, num_envs=3)
    with pytest.raises(EnvironmentUnavailable, match="CartPoleEnv has no num_envs"):
        adapt(gymnasium.make("CartPole-v1").unwrapped)
    world = Replies(None)
    world.metadata = {"autoreset_mode": "Disabled"}  # type: ignore[misc]
    with pytest.raises(EnvironmentUnavailable, match="turn its autoreset on"):
        adapt(world)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_ale_restarts_by_mask_and_seed(mode: str) -> None:
    from ale_py.vector_env import AtariVectorEnv

    def make(num_envs: int) -> Batch:
        world = AtariVectorEnv(
            "pong", num_envs, num_threads=1, noop_max=30, autoreset_mode=mode, img_height=21
        )
        return adapt(world, max_episode_steps=4)

    batch = make(N)
    batch.reset([5, 2**32 - 1, 9])
    shown = []
    for step in range(9):
        observations, rewards, terminations, truncations, _ = batch.step(np.full(N, 2))
        kept = observations.copy()
        assert rewards.dtype == np.float64
        assert not terminations.any()
        assert truncations.all() == (step % 4 == 3)
        shown.append(observations)
        if truncations.any():
            first, _ = batch.restart(truncations, [step, 11, 12])
            shown.append(first)
            np.testing.assert_array_equal(observations, kept)
    single = make(1)
    single.reset([5])
    for observations in shown[:4]:
        np.testing.assert_array_equal(single.step(np.full(1, 2))[0][0], observations[0])
    for row, episode in ((4, 3), (9, 7)):
        np.testing.assert_array_equal(single.reset([episode])[0][0], shown[row][0])


def test_envpool_restarts_by_mask_whatever_the_batch_and_its_threads() -> None:
    pytest.importorskip("envpool")
    from ppo.extras.vector.envpool import make_envpool

    def run(columns: list[int], num_threads: int) -> list[Any]:
        batch = make_envpool(
            "EnvPool/CartPole-v1",
            len(columns),
            seeds=[40 + i for i in columns],
            max_episode_steps=LIMIT,
            num_threads=num_threads,
        )
        shown = [batch.reset([0] * len(columns))[0]]
        length = np.zeros(len(columns), int)
        for _ in range(60):
            length += 1
            observations, _, terminations, truncations, _ = batch.step(length // 2 % 2)
            assert (truncations == ((length == LIMIT) & ~terminations)).all()
            kept = observations.copy()
            ended = terminations | truncations
            if ended.any():
                shown.append(observations)
                observations, infos = batch.restart(ended, [0] * int(ended.sum()))
                for i in range(len(columns)):
                    expected = {"elapsed_step": 0} if ended[i] else {}
                    assert info_of(infos, i, len(columns)) == expected
                assert (np.abs(observations[ended]) <= 0.05).all()
                np.testing.assert_array_equal(observations[~ended], kept[~ended])
                np.testing.assert_array_equal(shown[-1], kept)
                length[ended] = 0
            shown.append(observations)
        return [*np.concatenate(shown[:1] + shown[-1:], axis=1)]

    together = run([0, 1, 2, 3], 2)
    apart = run([0, 1], 1) + run([2, 3], 1)
    np.testing.assert_array_equal(together, apart)


def test_envpool_has_no_false_bounds_and_takes_seeds_of_32_bits() -> None:
    pytest.importorskip("envpool")
    from ppo.extras.vector.envpool import make_envpool

    batch = make_envpool("EnvPool/LunarLander-v3", 2, seeds=[1, 2**32 - 1])
    space = batch.observation_space
    assert (space.low == -np.inf).all()
    assert (space.high == np.inf).all()
    observations, _ = batch.reset([0, 0])
    assert CheckBatch(space)(observations)[1].tolist() == [0, 0]
    assert batch.max_episode_steps == 1000
    assert batch.note == ""


def test_envpool_names_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("envpool")
    from ppo.extras.vector.envpool import make_envpool

    def problem(env_name: str, **options: Any) -> str:
        with pytest.raises(EnvironmentUnavailable) as caught:
            make_envpool(env_name, 1, seeds=[1], **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "did you mean CartPole-v1?" in problem("EnvPool/CartPol-v1")
    assert "unexpected keyword argument 'wind'" in problem("EnvPool/CartPole-v1", wind=3)
    assert "cannot be made" in problem("EnvPool/Pong-v5", noop_max="x")
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert "needs EnvPool: pip install envpool" in problem("EnvPool/CartPole-v1")


class Rude(VectorEnv):
    """A world in NEXT_STEP whose every step gives reward 1 and terminates, resets included."""

    num_envs = N
    single_observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    single_action_space = gymnasium.spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros((N, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        return np.ones((N, 1), np.float32), np.ones(N), np.ones(N, bool), np.zeros(N, bool), {}


def test_dead_rows_have_no_reward_and_no_end() -> None:
    batch = adapt(Rude())
    batch.reset([0] * N)
    _, rewards, terminations, _, _ = batch.step(np.zeros(N, int))
    assert rewards.all()
    assert terminations.all()
    batch.restart(np.array([True, False, True]), [1, 2])
    _, rewards, terminations, _, _ = batch.step(np.zeros(N, int))
    assert rewards.tolist() == [0, 1, 0]
    assert terminations.tolist() == [False, True, False]
