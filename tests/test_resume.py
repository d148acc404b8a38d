"""Going on from a snapshot: as if there had been no interruption, or, where that cannot be, from a new episode."""

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import ppo.envs.episodes
from ppo.algorithm.learner import Learner
from ppo.config.config import Config
from ppo.config.resolve import resolve
from ppo.envs.pool import WorkerPool
from ppo.run.state import Snapshot, restore
from ppo.trainer import Training
from tests.running import PLAIN, make_training


class Forgetful(gymnasium.Env):
    """Its randomness heeds no seed, so that no episode happens again. It never ends."""

    observation_space = spaces.Box(0, 1, (3,))
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        return np.random.default_rng().random(3, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.random.default_rng().random(3, np.float32), 1.0, False, False, {}


class Worn(gymnasium.Env):
    """Shows the step of the episode, and how many episodes there were before in the same instance, of which it counts
    all. Episodes are seven steps."""

    observation_space = spaces.Box(0, 1e6, (2,))
    action_space = spaces.Discrete(2)
    made = 0

    def __init__(self) -> None:
        Worn.made += 1
        self.resets = -1

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        self.resets += 1
        self.steps = 0
        return np.array([0, self.resets], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        return np.array([self.steps, self.resets], np.float32), 1.0, self.steps == 7, False, {}


gymnasium.register("Forgetful-v0", entry_point=Forgetful)
gymnasium.register("Worn-v0", entry_point=Worn)


class Events(SimpleNamespace):
    """A RunFolder that only remembers what it is told."""

    def __init__(self) -> None:
        self.iteration, self.told = 0, []

    def event(self, kind: str, message: str = "", **details: Any) -> None:
        self.told.append((kind, message))


def make(env_name: str, **values: Any) -> Training:
    """A run that has not begun, of an environment of this file, of tests.environments, or of gymnasium."""
    if env_name not in ("Forgetful-v0", "Worn-v0"):
        return make_training(env_name, **values)
    return Training(
        *resolve(Config(**{"env_name": f"tests.test_resume:{env_name}", **PLAIN, **values}))
    )


def train(
    training: Training, num_iterations: int, start: Snapshot | None = None
) -> tuple[list[Snapshot], Events]:
    """Train for so many iterations; the state before each and at the end, and what the user was told."""
    run, config = Events(), training.config
    if start:
        tensors = {
            name: tensor.clone() for name, tensor in start[0].items()
        }  # for a training makes them its own
        assert restore(training, tensors, start[1]) == []
    with WorkerPool(training.make_worker, config.num_envs, int(config.num_workers)) as workers:
        training.go_on(workers, run)
        snapshots = [training.snapshot()]
        for iteration in range(training.iteration + 1, training.iteration + num_iterations + 1):
            training.learn(workers.collect(iteration))
            snapshots.append(training.snapshot())
    return snapshots, run


def assert_same(one: Snapshot, other: Snapshot) -> None:
    assert one[0].keys() == other[0].keys()
    for name, tensor in one[0].items():
        assert tensor.dtype == other[0][name].dtype, name
        assert torch.equal(tensor, other[0][name]), name
    assert one[1] == other[1]


SMALL = {"num_envs": 3, "num_steps": 17, "num_minibatches": 2, "num_epochs": 2, "hidden_size": 8}
ALL = {"normalize_observations": True, "normalize_rewards": True}
PONG = {
    "num_envs": 2,
    "num_steps": 16,
    "num_minibatches": 2,
    "num_epochs": 1,
    "screen_size": 36,
    "model": "cnn_small",
}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "counting": ("Counting-v0", SMALL),
    "worker processes": ("Counting-v0", {**SMALL, **ALL, "num_workers": 2}),
    "cartpole": ("CartPole-v1", {**SMALL, **ALL}),
    "cartpole, SGD": ("CartPole-v1", {**SMALL, "optimizer": "torch.optim:SGD"}),
    "lstm": ("Masked-v0", {**SMALL, "model": "lstm", "num_envs": 4}),
    "lstm on numbers": ("CartPole-v1", {**SMALL, **ALL, "model": "lstm", "num_envs": 4}),
    "gSDE": ("Pendulum-v1", {**SMALL, **ALL, "use_sde": True, "sde_sample_freq": 4}),
    "adaptive": ("CartPole-v1", {**SMALL, "learning_rate": "adaptive:1e-2", "target_kl": 1e-3}),
    "linear": ("CartPole-v1", {**SMALL, "learning_rate": "linear:1e-2", "clip_coef": "linear:0.2"}),
    "masks": ("Masked-v0", {**SMALL, **ALL}),
    "fresh": ("Worn-v0", {**SMALL, "fresh_env_per_episode": True}),
    "endless": ("Endless-v0", SMALL),
    "camera": ("Identity-v0", {**SMALL, "env_kwargs": {"shown": "Dict", "done": "Tuple"}}),
    "pong": ("PongNoFrameskip-v4", {**PONG, "end_on_life_loss": True, "sticky_actions": 0.25}),
    "breakout": (
        "BreakoutNoFrameskip-v4",
        {**PONG, "end_on_life_loss": True, "sticky_actions": 0.25, "frame_skip": 8},
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_gone_on_with_is_the_run_without_interruption(name: str) -> None:
    env_name, values = RUNS[name]
    total_steps = 4 * values["num_envs"] * values["num_steps"]
    values = {**values, "total_steps": total_steps}
    whole, told = train(make(env_name, **values), 4)
    assert told.told == []
    assert not torch.equal(
        whole[0][0][key := next(iter(whole[0][0]))], whole[-1][0][key]
    )  # something was learned
    for k in (0, 1, 3) if name not in ("worker processes", "pong", "breakout") else (2,):
        torch.manual_seed(k + 99)
        resumed, told = train(make(env_name, **values), 4 - k, whole[k])
        assert told.told == []
        assert_same(resumed[0], whole[k])
        assert_same(resumed[-1], whole[-1])


class Drawing(Learner):
    """Its loss is scaled at random."""

    def loss(self, minibatch: Any) -> Any:
        loss, metrics = super().loss(minibatch)
        return loss * (0.5 + torch.rand(())), metrics


def test_what_a_loss_of_ones_own_draws_goes_on_too() -> None:
    def fresh() -> Training:
        plain = make("CartPole-v1", **SMALL)
        return Training(plain.config, plain.spaces, Drawing)

    whole, _ = train(fresh(), 3)
    resumed, _ = train(fresh(), 2, whole[1])
    assert_same(resumed[-1], whole[-1])


def test_a_run_gone_on_with_twice_is_the_same_too() -> None:
    whole, _ = train(make("CartPole-v1", **SMALL, **ALL), 6)
    state = whole[0]
    for _ in range(3):
        state = train(make("CartPole-v1", **SMALL, **ALL), 2, state)[0][-1]
    assert_same(state, whole[-1])


def test_an_environment_that_forgets_its_seed_begins_a_new_episode_and_training_goes_on() -> None:
    values = {**SMALL, **ALL}
    whole, _ = train(make("Forgetful-v0", **values), 2)
    assert (whole[-1][0]["normalize_reward.returns"] > 0).all()
    assert (whole[-1][0]["episodes.begun"] == 1).all()
    training = make("Forgetful-v0", **values)
    after, run = train(training, 1, whole[-1])
    assert [kind for kind, _ in run.told] == ["episodes_lost"]
    assert "[0, 1, 2]" in run.told[0][1]
    begun, end = after[0][0], after[-1][0]
    assert (begun["normalize_reward.returns"] == 0).all()
    assert (begun["episodes.begun"] == 2).all()
    assert (begun["open_episodes.lengths"] == 0).all()
    assert not torch.equal(begun["next.observations"], whole[-1][0]["next.observations"])
    assert (end["open_episodes.lengths"] == SMALL["num_steps"]).all()
    assert training.iteration == 3
    assert training.step == 3 * 3 * 17


def test_a_mix_is_told_by_its_indices() -> None:
    whole, _ = train(make("CartPole-v1", **SMALL, **ALL), 2)
    tensors = {name: tensor.clone() for name, tensor in whole[-1][0].items()}
    tensors["next.observations"][1] += 1  # as if it had been another world
    after, run = train(make("CartPole-v1", **SMALL, **ALL), 0, (tensors, whole[-1][1]))
    assert "[1]" in run.told[0][1]
    begun = after[0][0]["episodes.begun"] - tensors["episodes.begun"]
    assert begun.tolist() == [0, 1, 0]
    returns = after[0][0]["normalize_reward.returns"]
    assert returns[1] == 0
    assert torch.equal(returns[[0, 2]], tensors["normalize_reward.returns"][[0, 2]])


def test_an_instance_that_is_worn_is_noticed_unless_made_anew() -> None:
    whole, _ = train(make("Worn-v0", **SMALL), 2)
    assert [kind for kind, _ in train(make("Worn-v0", **SMALL), 1, whole[-1])[1].told] == [
        "episodes_lost"
    ]


def test_an_episode_too_long_to_be_played_again_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ppo.envs.episodes, "LONGEST_REPLAY", 20)
    whole, _ = train(make("Endless-v0", **SMALL), 4)
    lengths = [state[0]["open_episodes.lengths"].tolist() for state in whole]
    assert lengths[:3] == [
        [-1] * 3 if k == 0 and lengths[0][0] == -1 else [17 * k] * 3 for k in range(3)
    ]
    assert lengths[3] == [-1] * 3
    assert lengths[4] == [-1] * 3
    assert len(whole[-1][0]["open_episodes.actions"]) == 0
    assert train(make("Endless-v0", **SMALL), 1, whole[2])[1].told == []
    after, run = train(make("Endless-v0", **SMALL), 1, whole[4])
    assert "[0, 1, 2]" in run.told[0][1]
    assert (after[0][0]["episodes.begun"] == 2).all()
    assert (after[-1][0]["open_episodes.lengths"] == 17).all()


@pytest.mark.parametrize(("is_fresh", "seen"), [(False, {0, 1, 2}), (True, {0})])
def test_fresh_env_per_episode_makes_an_instance_for_every_reset(
    is_fresh: bool, seen: set[int]
) -> None:
    training = make(
        "Worn-v0", num_envs=1, num_steps=21, num_minibatches=1, fresh_env_per_episode=is_fresh
    )
    Worn.made = 0
    with WorkerPool(training.make_worker, 1, 0) as workers:
        workers.collect(1)
        assert Worn.made == (4 if is_fresh else 1)  # three episodes, and one that has just begun
    assert set(training.rollout.observations[:-1, 0, 1].tolist()) == seen
