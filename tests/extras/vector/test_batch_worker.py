"""Training on batches and teams: what is collected, and what is learned from."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ppo
from ppo.algorithm.gae import generalized_advantages
from ppo.envs.env_factories import as_env_name
from ppo.envs.errors import EnvironmentUnavailable
from ppo.errors import PPOError
from ppo.extras.vector.make import make_one_column
from tests.running import TINY, Call, environment_flags
from tests.teams import Relay, Simulator, entry_point, sync

Tables = list[dict[str, np.ndarray]]
ROLLOUT = ("observations", "actions", "rewards", "terminations", "truncations", "present")


class Recorder(ppo.Callback):
    """Keep copies of all rollouts, batches and reports."""

    def __init__(self) -> None:
        self.rollouts: Tables = []
        self.batches: Tables = []
        self.infos: list[Any] = []

    def on_iteration(self, run: Any) -> None:
        rollout = vars(run.rollout)
        self.rollouts.append({name: rollout[name].copy() for name in ROLLOUT})
        tables = {name: torch.as_tensor(table) for name, table in run.batch.items()}
        self.batches.append({name: table.clone().numpy() for name, table in tables.items()})
        self.infos.append(run.rollout.info)


@pytest.fixture
def collect(tmp_path: Path) -> Callable[..., Recorder]:
    def collect(env: Any, **flags: Any) -> Recorder:
        recorder = Recorder()
        number = len([*tmp_path.iterdir()])
        flags = {**TINY, "num_envs": 6, "num_steps": 64, "total_steps": 6 * 64 * 3, **flags}
        flags["preset"] = "none"
        del flags["env_name"]
        ppo.train(env, callbacks=[recorder], run_dir=str(tmp_path / str(number)), **flags)
        return recorder

    return collect


@pytest.mark.slow_but_first
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_gives_what_single_environments_give(
    mode: str, num_workers: int, collect: Callable[..., Recorder]
) -> None:
    single = collect("CartPole-v1", num_workers=num_workers)
    batch = collect(partial(sync, mode=mode), num_workers=num_workers)
    assert len(single.rollouts) == 3
    for expected, found in zip(
        single.rollouts + single.batches, batch.rollouts + batch.batches, strict=True
    ):
        assert expected.keys() == found.keys()
        for name, table in expected.items():
            np.testing.assert_array_equal(found[name], table, err_msg=name)
    for one, other in zip(single.infos, batch.infos, strict=True):
        assert one.episodes == other.episodes
        assert sum(map(len, (one.episodes,))) > 0


@pytest.mark.parametrize("masks", ["", "info", "observation"])
def test_a_team_gives_the_batch_that_is_computed_by_hand(
    masks: str, collect: Callable[..., Recorder]
) -> None:
    flags = {"gamma": 0.9, "gae_lambda": 0.8, "normalize_rewards": False}
    flags |= {"normalize_observations": False, "num_steps": 12, "total_steps": 6 * 12}
    recorder = collect(partial(Relay, masks=masks), **flags)
    (rollout,), (batch,), (info,) = recorder.rollouts, recorder.batches, recorder.infos
    # The episode of a team takes 5 steps: who is there, and when whose episode ends.
    life = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 1, 1], [0, 1, 0]], bool)
    present = np.tile(np.tile(life, (3, 1))[:13], (1, 2))
    np.testing.assert_array_equal(rollout["present"], present)
    expected_ends = np.zeros((12, 6), bool)
    for first in (0, 3):
        expected_ends[[1, 6, 11], first] = True
        expected_ends[[3, 8], first + 2] = True
    np.testing.assert_array_equal(rollout["terminations"], expected_ends)
    truncations = np.zeros((12, 6), bool)
    truncations[[4, 9]] = [False, True, False] * 2
    np.testing.assert_array_equal(rollout["truncations"], truncations)
    time = np.arange(13) % 5
    for column in range(6):
        shown = rollout["observations"][:, column]
        there = present[:, column]
        np.testing.assert_array_equal(shown[there, 0], column % 3)
        np.testing.assert_array_equal(shown[there, 1], time[there])
    paid = rollout["actions"][:, :, 0] * (1 + np.arange(6) % 3) * present[:-1]
    np.testing.assert_array_equal(rollout["rewards"], paid)
    if masks:
        assert not paid[time[:-1] % 2 == 0].any()
    # Advantages: column by column, episode by episode, from the values of the batch.
    values = batch["values"].reshape(12, 6)
    advantages = batch["advantages"].reshape(12, 6)
    assert (advantages[~present[:-1]] == 0).all()
    done = expected_ends | truncations
    for column in range(6):
        start = 0
        for stop in [*np.flatnonzero(done[:, column]) + 1]:
            rows = [t for t in range(start, stop) if present[t, column]]
            start = stop
            if truncations[rows[-1], column]:
                continue  # whose last value is not in the batch
            own = values[rows, column]
            by_hand = generalized_advantages(
                rollout["rewards"][rows, column][:, None],
                own[:, None],
                np.append(own[1:], 0)[:, None],
                terminations=np.arange(len(rows))[:, None] == len(rows) - 1,
                truncations=np.zeros((len(rows), 1), bool),
                gamma=0.9,
                gae_lambda=0.8,
            )
            np.testing.assert_allclose(
                advantages[rows, column], by_hand[:, 0], rtol=1e-5, atol=1e-6
            )
    lengths = {(e.environment % 3, e.episode_length) for e in info.episodes}
    assert lengths == {(0, 2), (1, 5), (2, 3)}
    team_returns = [e.metrics["team_return"] for e in info.episodes if "team_return" in e.metrics]
    assert len(team_returns) == 4  # two copies, two whole episodes
    np.testing.assert_allclose(team_returns[0], paid[:5, :3].sum())
    assert {e.environment % 3 for e in info.episodes if e.metrics} == {1}


def test_wrong_use_is_named(tmp_path: Path) -> None:
    def problem(env: Any, **flags: Any) -> str:
        flags = {**TINY, "num_envs": 6, **flags}
        del flags["env_name"]
        with pytest.raises(PPOError) as caught:
            ppo.train(env, run_dir=str(tmp_path / "run"), **flags)
        assert caught.value.exit_code == 2
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "agents share one policy" in problem(partial(Relay, odd_one_out=True))
    assert "comes in groups of 3, such as the agents of a team: give a multiple" in problem(
        Relay, num_envs=4
    )
    assert "such as 6" in problem(Relay, num_envs=4)
    assert "--frame_skip=2: " in problem(sync, frame_skip=2)
    assert "--reward_term: " in problem(sync, reward_term=["x"])
    assert "not of 1" in problem(lambda num_envs: sync(2))
    assert "cannot be kept" in problem(entry_point, max_episode_steps=5)


@pytest.mark.slow
def test_a_command_trains_evaluates_and_resumes_a_team(tmp_path: Path, call: Call) -> None:
    run = str(tmp_path / "run")
    name = "--env_name=tests.teams:Relay"
    line = ["--preset=none", "--num_steps=32", "--eval_episodes=4", "--report=False", "--verbose=0"]
    code, _, errors = call(name, *line, "--num_envs=6", "--total_steps=768", f"--run_dir={run}")
    assert code == 0, errors
    summary = json.loads(Path(run, "summary.json").read_text())
    assert summary["evaluation"]["episodes"] == 4
    assert "env/team_return" in Path(run, "metrics.csv").read_text().partition("\n")[0]
    code, shown, errors = call("evaluate", run, name, "--episodes=9")
    assert code == 0, errors
    assert "team_return" in shown
    code, shown, errors = call(f"--resume={run}", name, "--total_steps=1536", *line[-2:])
    assert code == 0, errors
    assert "resume is not exact: environments [0, 1, 2, 3, 4, 5] did not repeat" in shown + errors


@pytest.mark.parametrize("make", [sync, partial(sync, mode="SameStep"), entry_point])
def test_a_batch_of_one_is_an_environment(make: Any) -> None:
    """Each reset shows the first observation of an episode, also in the midst of one."""
    env = make_one_column(environment_flags(as_env_name(make)), 0)
    for length in (1, 500):
        first, _ = env.reset(seed=length)
        assert (np.abs(first) <= 0.05).all()
        for _ in range(length):
            _, reward, terminated, truncated, _ = env.step(1)
            assert reward == 1
            assert not truncated
            if terminated:
                break
        assert terminated == (length == 500)
    assert (np.abs(env.reset(seed=1)[0]) <= 0.05).all()


def test_a_policy_of_a_team_acts_for_its_agents_but_makes_no_environment(tmp_path: Path) -> None:
    policy = trained_policy("tests.teams:Relay", tmp_path)
    observations, _ = Relay().reset()
    assert {policy.predict(observation) for observation in observations.values()} <= {0, 1}
    with pytest.raises(EnvironmentUnavailable) as caught:
        policy.make_env()
    assert "tests.teams:Relay makes a team of agents, which is no gymnasium.Env: " in str(
        caught.value
    )
    assert "policy.predict" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "eval_env"), [("tests.teams:sync", "CartPole-v1"), ("CartPole-v1", "tests.teams:sync")]
)
def test_a_batch_may_be_evaluated_by_single_environments_and_the_reverse(
    name: str, eval_env: str, tmp_path: Path
) -> None:
    found = trained_policy(name, tmp_path, eval_env=eval_env).evaluate(4, num_envs=2)
    assert found.lengths == found.returns
    assert min(found.lengths) > 5
    assert found.unfinished == 0


def trained_policy(name: str, folder: Path, **flags: Any) -> ppo.Policy:
    """Train a short run; return its policy."""
    values = {**TINY, "env_name": name, "num_envs": 6, "total_steps": 96, **flags}
    run = folder / f"run{len([*folder.iterdir()])}"
    checkpoint = ppo.train(ppo.Config(**values, run_dir=str(run))).checkpoint
    return ppo.load_policy(checkpoint, name, eval_env=flags.get("eval_env"))


def test_a_time_limit_of_ours_is_a_truncation_with_the_true_last_observation(
    collect: Callable[..., Recorder],
) -> None:
    single = collect("CartPole-v1", max_episode_steps=9)
    batch = collect(sync, max_episode_steps=9)
    assert single.rollouts[0]["truncations"].any()
    for one, other in zip(single.infos, batch.infos, strict=True):
        assert len(one.last_observations) == len(other.last_observations) > 0
        for expected, found in zip(one.last_observations, other.last_observations, strict=True):
            np.testing.assert_array_equal(found.observation, expected.observation)
    for expected, found in zip(single.batches, batch.batches, strict=True):
        np.testing.assert_array_equal(found["advantages"], expected["advantages"])


def test_a_world_that_loses_last_observations_is_noted_once(
    collect: Callable[..., Recorder], capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = collect(Simulator, verbose=1)
    shown = "".join(capsys.readouterr())
    assert shown.count("does not return the last observation of an episode") == 1
    for rollout, info in zip(recorder.rollouts, recorder.infos, strict=True):
        for last in info.last_observations:  # the one before
            expected = rollout["observations"][last.step, last.environment]
            np.testing.assert_array_equal(last.observation, expected)
        assert len(info.last_observations) == rollout["truncations"].sum() > 0


def test_a_callback_sets_a_team_parameters(
    collect: Callable[..., Recorder], tmp_path: Path
) -> None:
    class Pay(ppo.Callback):
        def on_iteration(self, run: Any) -> None:
            run.set_env(bonus=10.0)

    recorder = Recorder()
    flags = {**TINY, "num_envs": 3, "num_steps": 16, "total_steps": 96}
    del flags["env_name"]
    ppo.train(Relay, callbacks=[Pay(), recorder], run_dir=str(tmp_path / "run"), **flags)
    assert recorder.rollouts[0]["rewards"].max() <= 3
    assert recorder.rollouts[1]["rewards"][-1].max() >= 10


@pytest.mark.slow
def test_a_batch_is_evaluated_by_single_environments(tmp_path: Path) -> None:
    flags = {**TINY, "env_name": as_env_name(sync), "preset": "none", "eval_episodes": 2}
    by_batch = ppo.train(ppo.Config(**flags, run_dir=str(tmp_path / "batch")))
    flags["eval_env"] = "CartPole-v1"
    alone = ppo.train(ppo.Config(**flags, run_dir=str(tmp_path / "alone")))
    assert alone.evaluation.returns == by_batch.evaluation.returns
