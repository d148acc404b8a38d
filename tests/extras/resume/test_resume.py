"""Resuming from a state: as if there had been no interruption, or else with a new episode."""

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import ppo.extras.resume.episodes
from ppo.algorithm.learner import Learner
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.monitor import Monitor, all_callbacks
from ppo.run.checkpoint import LAST, State, copy_state, load
from ppo.run.resume import restore, snapshot
from tests.running import PLAIN, assert_same, learn, make_components, metrics, run_main


class Forgetful(gymnasium.Env):
    """Draw at random without the seed, so that no episode happens again. It never ends."""

    observation_space = spaces.Box(0, 1, (3,))
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        return np.random.default_rng().random(3, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.random.default_rng().random(3, np.float32), 1.0, False, False, {}


class Worn(gymnasium.Env):
    """Show the step of the episode, and how many episodes there were before in the same instance.

    It counts the instances. Episodes are seven steps."""

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


class Fragile(gymnasium.Env):
    """Show its step, which is outside of its space; if a file is there, it is removed at the sixth
    step, which kills the process. It never ends."""

    observation_space = spaces.Box(-2, -1, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        self.steps = np.zeros(1, np.float32)
        return self.steps.copy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        if self.steps == 6 and self.path.exists():
            self.path.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.steps.copy(), 1.0, False, False, {}


gymnasium.register("Forgetful-v0", entry_point=Forgetful)
gymnasium.register("Worn-v0", entry_point=Worn)


class Events(SimpleNamespace):
    """A RunFolder that only remembers the events."""

    def __init__(self) -> None:
        self.iteration = 0
        self.told: list[tuple[str, str]] = []

    def event(self, kind: str, message: str = "", count: int = 1, **details: Any) -> None:
        self.told.append((kind, message))


def make(env_name: str, **values: Any) -> Components:
    """Make a run in an environment of this file, of tests.environments, or of gymnasium."""
    if env_name not in ("Forgetful-v0", "Worn-v0"):
        return make_components(env_name, **values)
    return Components(
        settings_of(
            Config(**{"env_name": f"tests.extras.resume.test_resume:{env_name}", **PLAIN, **values})
        )
    )


def train(
    parts: Components, num_iterations: int, start: State | None = None
) -> tuple[list[State], list[tuple[str, str]]]:
    """Train for so many iterations; return the state before each and at the end, and the events."""
    run = Events()
    monitor = Monitor(parts, run, all_callbacks(parts))  # type: ignore[arg-type]
    if start:
        assert restore(parts, monitor, copy_state(start)) == []
    with parts.make_pool() as workers:
        monitor.note_lost_episodes(parts.restore_environments(workers))
        states = [copy_state(snapshot(parts, monitor))]
        for iteration in range(parts.iteration + 1, parts.iteration + num_iterations + 1):
            learn(parts, workers.collect(iteration))
            states.append(copy_state(snapshot(parts, monitor)))
    return states, run.told


ONE_ENV = (
    *("--num_envs=1", "--num_steps=16", "--num_minibatches=1", "--preset=none"),
    *("--eval_episodes=0", "--verbose=0", "--num_workers=1"),
)
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
OWN = "tests.models.test_own_model:"
ADAMW = "torch.optim:AdamW(weight_decay=0.1, amsgrad=True)"
LIVES = {**PONG, "end_on_life_loss": True, "sticky_actions": 0.25}
TIME_AWARE = {"wrapper": "gymnasium.wrappers:TimeAwareObservation", "max_episode_steps": 9}
LIMITED = {"end_on_life_loss": True, "wrapper": "gymnasium.wrappers:TimeLimit(70)"}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "worker processes": ("Counting-v0", {**SMALL, **ALL, "num_workers": 2}),
    "lstm, masks": ("Masked-v0", {**SMALL, **ALL, "model": "lstm", "num_envs": 4}),
    "gSDE": ("Pendulum-v1", {**SMALL, **ALL, "use_sde": True, "sde_sample_freq": 4}),
    "adaptive": ("CartPole-v1", {**SMALL, "learning_rate": "adaptive:1e-2", "target_kl": 1e-3}),
    "buffers": ("CartPole-v1", {**SMALL, "model": f"{OWN}Buffered"}),
    "torch's own": ("CartPole-v1", {**SMALL, "model": f"{OWN}Leaning", "inference": "learner"}),
    "frozen": ("CartPole-v1", {**SMALL, "freeze": "value", "optimizer": ADAMW}),
    "endless": ("Endless-v0", SMALL),
    "wrapper": ("CartPole-v1", {**SMALL, **TIME_AWARE}),
    "two images": ("Lights", {**PONG, "image": "gray", "normalize_observations": True}),
    "pong": ("PongNoFrameskip-v4", LIVES),
    "wrapped game": ("BreakoutNoFrameskip-v4", {**PONG, **LIMITED, "num_steps": 32}),
    "frames skipped": ("BreakoutNoFrameskip-v4", {**LIVES, "frame_skip": 8}),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_is_the_run_without_interruption(name: str) -> None:
    env_name, values = RUNS[name]
    total_steps = 4 * values["num_envs"] * values["num_steps"]
    values = {**values, "total_steps": total_steps}
    whole, told = train(make(env_name, **values), 4)
    assert told == []
    weights = next(name for name in whole[0] if name.startswith("model."))
    assert not torch.equal(whole[0][weights], whole[-1][weights])  # something was learned
    for k in (0, 2):
        torch.manual_seed(k + 99)
        resumed, told = train(make(env_name, **values), 4 - k, whole[k])
        assert told == []
        assert_same(resumed[0], whole[k])
        assert_same(resumed[-1], whole[-1])


class Drawing(Learner):
    """Its loss is scaled at random."""

    def loss(self, minibatch: Any, distribution: Any, values: Any) -> Any:
        loss, metrics = super().loss(minibatch, distribution, values)
        return loss * (0.5 + torch.rand(())), metrics


def test_the_random_numbers_of_a_loss_of_your_own_are_resumed_too() -> None:
    def fresh() -> Components:
        plain = make("CartPole-v1", **SMALL)
        return Components(plain.settings, make_learner=Drawing)

    whole, _ = train(fresh(), 3)
    resumed, _ = train(fresh(), 2, whole[1])
    assert_same(resumed[-1], whole[-1])


def test_an_environment_that_ignores_its_seed_begins_a_new_episode() -> None:
    values = {**SMALL, **ALL}
    whole, _ = train(make("Forgetful-v0", **values), 2)
    assert (whole[-1]["normalize_reward.returns"] > 0).all()
    assert (whole[-1]["episodes.begun"] == 1).all()
    parts = make("Forgetful-v0", **values)
    after, told = train(parts, 1, whole[-1])
    assert [kind for kind, _ in told] == ["episodes_lost"]
    assert "[0, 1, 2]" in told[0][1]
    begun = after[0]
    end = after[-1]
    assert (begun["normalize_reward.returns"] == 0).all()
    assert (begun["episodes.begun"] == 2).all()
    assert (begun["open_episodes.lengths"] == 0).all()
    assert not torch.equal(begun["next.observations"], whole[-1]["next.observations"])
    assert (end["open_episodes.lengths"] == SMALL["num_steps"]).all()
    assert parts.iteration == 3
    assert parts.step == 3 * 3 * 17


def test_a_loss_of_some_episodes_names_their_environments() -> None:
    whole, _ = train(make("CartPole-v1", **SMALL, **ALL), 2)
    state = copy_state(whole[-1])
    state["next.observations"][1] += 1  # as if it had been another world
    after, told = train(make("CartPole-v1", **SMALL, **ALL), 0, state)
    assert "[1]" in told[0][1]
    begun = after[0]["episodes.begun"] - state["episodes.begun"]
    assert begun.tolist() == [0, 1, 0]
    returns = after[0]["normalize_reward.returns"]
    assert returns[1] == 0
    assert torch.equal(returns[[0, 2]], state["normalize_reward.returns"][[0, 2]])


def test_an_instance_that_is_worn_is_noticed_unless_made_anew() -> None:
    whole, _ = train(make("Worn-v0", **SMALL), 2)
    assert [kind for kind, _ in train(make("Worn-v0", **SMALL), 1, whole[-1])[1]] == [
        "episodes_lost"
    ]


def test_an_episode_too_long_to_be_replayed_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ppo.extras.resume.episodes, "MAX_REPLAY_STEPS", 20)
    whole, _ = train(make("Endless-v0", **SMALL), 4)
    lengths = [state["open_episodes.lengths"].tolist() for state in whole]
    assert lengths[:3] == [
        [-1] * 3 if k == 0 and lengths[0][0] == -1 else [17 * k] * 3 for k in range(3)
    ]
    assert lengths[3] == [-1] * 3
    assert lengths[4] == [-1] * 3
    assert len(whole[-1]["open_episodes.actions"]) == 0
    assert train(make("Endless-v0", **SMALL), 1, whole[2])[1] == []
    after, told = train(make("Endless-v0", **SMALL), 1, whole[4])
    assert "[0, 1, 2]" in told[0][1]
    assert (after[0]["episodes.begun"] == 2).all()
    assert (after[-1]["open_episodes.lengths"] == 17).all()


@pytest.mark.slow
def test_what_is_lost_as_episodes_are_restored_is_told_and_counted(tmp_path: Path) -> None:
    about = {"path": str(tmp_path / "marker")}
    own = (
        "--env_name=tests.extras.resume.test_resume:Fragile",
        f"--env_kwargs={json.dumps(about)}",
    )
    run = tmp_path / "run"
    begun = run_main(*own, *ONE_ENV, "--num_iterations=2", f"--run_dir={run}")
    assert begun.returncode == 0, begun.stderr
    (tmp_path / "marker").touch()
    done = run_main(*own, f"--resume={run}", "--num_iterations=3")
    assert done.returncode == 0, done.stderr
    assert "resume is not exact: environments [0]" in done.stderr
    lost = "worker 0 was lost and is replaced, new episodes begin in its environments"
    assert lost in done.stderr
    faults = ("worker_lost", "episodes_lost", "observation_outside")
    rows = [[int(row[f"faults/{fault}"]) for fault in faults] for row in metrics(run)]
    assert rows == [[0, 0, 17], [0, 0, 33], [1, 1, 50]]  # outside: each reset and 16 steps
    counts = load(run / "checkpoints" / LAST)["faults"]
    assert [counts[fault] for fault in faults] == rows[-1]
