"""Levels: which one an episode is on, and how that follows from what is learned there."""

import json
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from ppo import load_policy, train
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.make import make_env
from ppo.errors import ConfigError
from ppo.extras.levels.episodes import WEIGHTS
from ppo.extras.levels.flags import LevelFlags, parse_levels
from ppo.extras.levels.replay import LevelReplay, check, replay_probabilities
from ppo.peers import Peers
from ppo.run.checkpoint import load, save
from tests.running import PLAIN, Call, copy_tables, learn, metrics, saved

HERE = "tests.extras.levels.test_levels"
SMALL: dict[str, Any] = {
    "env_name": f"{HERE}:Hall",
    "levels": "level:0-4",
    "num_envs": 3,
    "num_steps": 16,
    "total_steps": 288,
    "num_minibatches": 1,
    "num_epochs": 1,
    "hidden_size": 8,
    "eval_episodes": 0,
    "verbose": 0,
    "report": False,
    "level_temperature": 1.0,
}


class Hall(gymnasium.Env):
    """Shows its level, its step and a number that it draws; episodes last 5 steps and as many more
    as the level says, each reward is the number times the level. If there is such a file, a step
    removes it and kills
    the process."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,))
    action_space = spaces.Discrete(2)

    def __init__(self, marker: str = "none") -> None:
        self.level = 0
        self.marker = Path(marker)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.drawn = self.np_random.random()
        return self.show(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.marker.exists():
            self.marker.unlink()
            os._exit(1)
        self.steps += 1
        reward = self.level * self.drawn
        return self.show(), reward, self.steps == 5 + self.level, False, {}

    def show(self) -> np.ndarray:
        return np.array([self.level, self.steps, self.drawn], np.float32)


class Taking(Hall):
    """Takes whatever is set by its own method."""

    def set_training(self, level: int = 0, others: str = "") -> None:
        self.level, self.others = level, others


def parts_of(**values: Any) -> Components:
    return Components(settings_of(Config(**{**PLAIN, **SMALL, **values})))


def env_of(**values: Any) -> Any:
    """Make an environment as evaluations do."""
    return make_env(parts_of(**values).config)


def in_training(env: Any, weights: Any = None) -> Any:
    """Let it draw levels as in training."""
    (drawing,) = [layer for layer in wrappers(env) if hasattr(layer, "set_training")]
    drawing.is_training = True
    if weights is not None:
        drawing.set_training(**{WEIGHTS: weights})
    return env


def wrappers(env: Any) -> list[Any]:
    found = []
    while env is not env.unwrapped:
        found.append(env)
        env = env.env
    return found


def seen(env: Any, seeds: Any) -> list[int]:
    """Return the levels that environments show after resets with seeds."""
    return [int(env.reset(seed=seed)[0][0]) for seed in seeds]


def test_levels_are_ranges_numbers_and_texts() -> None:
    assert parse_levels("level:0-3") == ("level", [0, 1, 2, 3])
    assert parse_levels("slope: 0.5, -1,7-8,true,steep") == (
        "slope",
        [0.5, -1, 7, 8, True, "steep"],
    )
    assert parse_levels("tilt:-9--8, -1 - 1") == ("tilt", [-9, -8, -1, 0, 1])
    assert parse_levels("seed:7,5") == ("seed", [7, 5])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--levels=0-4"], "--levels=0-4: expected name:0-49 or name:a,b,c or none"),
        (["--levels=level:"], "--levels=level:: expected"),
        (["--levels=level:5-4"], "--levels=level:5-4: 5-4 is no range, give the lower number fi"),
        (["--levels=level:1,0.5-1.5"], "--levels=level:1,0.5-1.5: 0.5-1.5 is neither a number n"),
        (["--levels=level:0-999999999"], "give 1 to 10,000 levels"),
        (["--levels=level:0-4,3"], "--levels=level:0-4,3: give each level once"),
        (["--levels=seed:0.5"], "--levels=seed:0.5: give seeds that are integers from 0 on"),
        (
            ["--level_scores=return"],
            "--level_scores means nothing without --levels: give both, or neither",
        ),
        (["--levels=level:0-4", "--level_temperature=0"], "--level_temperature=0: expected"),
        (["--levels=room:0-4"], "--levels=room:0-4: set_env(room="),
        (["--levels=level:0-4", "--level_staleness=2"], "--level_staleness=2: expected"),
    ],
)
def test_levels_that_cannot_be_are_refused_in_a_sentence(
    flags: list[str], message: str, tmp_path: Path, call: Call
) -> None:
    code, _, errors = call(f"--env_name={HERE}:Hall", *flags, f"--run_dir={tmp_path / 'run'}")
    assert code == 2
    assert message in errors
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_probabilities_are_those_of_the_paper() -> None:
    scores, staleness = np.array([0.1, 0.7, 0.3]), np.array([0, 1, 3])
    by_rank = np.array([1 / 9, 1, 1 / 4])  # of the ranks 3, 1, 2, at a temperature of a half
    expected = 0.8 * by_rank / by_rank.sum() + 0.2 * np.array([0, 0.25, 0.75])
    found = replay_probabilities(scores, staleness, 0.5, 0.2)
    np.testing.assert_allclose(found, expected)
    found = replay_probabilities(scores, np.zeros(3), 0.5, 0.2)
    np.testing.assert_allclose(found, 0.8 * by_rank / by_rank.sum() + 0.2 / 3)
    assert replay_probabilities(scores, staleness, 1e-300, 0.0).tolist() == [0, 1, 0]


def test_levels_of_one_score_are_equally_likely_wherever_they_stand() -> None:
    scores = np.array([0.0, 2.0, 0.0, 0.0, 1.0])
    found = replay_probabilities(scores, np.zeros(5), 1, 0)
    by_rank = 1 / np.array([4, 1, 4, 4, 2])
    by_rank[[0, 2, 3]] = (1 / 3 + 1 / 4 + 1 / 5) / 3
    np.testing.assert_allclose(found, by_rank / by_rank.sum())


def replay_of(**values: Any) -> LevelReplay:
    """Make a LevelReplay of three levels, without a run around it."""
    config = LevelFlags(**{"levels": "level:0-2", "level_staleness": 0, **values})
    parts: Any = SimpleNamespace(config=config, peers=Peers(), iteration=0)
    return LevelReplay(parts, 3)


def add(
    replay: LevelReplay, levels: Any, advantages: Any, *episodes: tuple[int, int, float]
) -> Any:
    """Add a rollout (T, N) with ends of episodes at (step, environment), and their returns; return
    the weights for the next one."""
    ended = [SimpleNamespace(step=t, environment=n, episode_return=x) for t, n, x in episodes]
    table = np.array(levels, np.float32)[..., None]
    rollout: Any = SimpleNamespace(levels=table, info=SimpleNamespace(episodes=ended))
    replay.parts.iteration += 1
    replay.on_batch(rollout, {"advantages": np.array(advantages, np.float32).ravel()})
    return replay.env_attributes()[WEIGHTS]


def test_levels_are_scored_by_the_mean_size_of_advantages_unseen_ones_first() -> None:
    replay = replay_of(level_temperature=1)
    assert add(replay, [[0, 2], [0, 0]], [[1, -5], [-3, 2]]) == [0, 1, 0]
    assert replay.scores.tolist() == [2, 0, 5]
    assert replay.metrics == {"levels/seen": 2 / 3, "levels/score": 3.5, "levels/place": 0.5}
    weights = add(replay, [[1, 1], [1, 1]], [[4, 4], [4, 4]])
    assert replay.scores.tolist() == [2, 4, 5]
    assert weights == [181818, 272727, 545455]  # of the ranks 3, 2, 1: 1/3, 1/2, 1
    add(replay, [[2, 2], [2, 2]], [[1, 1], [1, 1]])  # the newest rollout counts alone
    assert replay.scores.tolist() == [2, 4, 1]
    assert replay.played.tolist() == [1, 2, 3]


def test_levels_that_are_stale_are_drawn_by_how_long_ago_they_were_played() -> None:
    replay = replay_of(level_staleness=1)
    add(replay, [[0, 1, 2]], [[0, 0, 0]])
    add(replay, [[1, 1, 1]], [[9, 9, 9]])
    assert add(replay, [[2, 2, 2]], [[0, 0, 0]]) == [666667, 333333, 0]


def test_levels_are_scored_by_the_deviation_of_their_returns() -> None:
    replay = replay_of(level_scores="return", level_temperature=1)
    levels = [[0, 1, 2]] * 60
    ends = [(t, n, float(x)) for t in range(60) for n, x in enumerate((0, t % 2, 1))]
    weights = add(replay, levels, np.zeros((60, 3)), *ends)
    assert replay.scores[[0, 2]].tolist() == [0, 0]
    assert replay.scores[1] == pytest.approx(0.5, abs=0.01)  # won in every other episode
    assert max(weights) == weights[1]


def test_uniform_levels_stay_so() -> None:
    assert add(replay_of(level_scores="uniform"), [[0, 0]], [[1, 1]]) == [1, 1, 1]


def test_the_level_of_an_episode_depends_on_its_seed_and_the_weights_only() -> None:
    env = in_training(env_of(), [0, 3, 0, 0, 1])
    levels = seen(env, range(400))
    counts = Counter(levels)
    assert {*counts} == {1, 4}
    assert 260 < counts[1] < 340
    other = in_training(env_of(), [0, 3, 0, 0, 1])
    assert seen(other, reversed(range(400))) == levels[::-1]
    # The environment's own draws are not those of the level.
    drawn = [env.reset(seed=seed)[0][2] for seed in range(400)]
    assert abs(np.corrcoef(levels, drawn)[0, 1]) < 0.2


def test_evaluations_are_on_all_levels_alike_or_on_the_one_that_is_set() -> None:
    env = env_of()
    counts = Counter(seen(env, range(500)))
    assert all(65 < counts[level] < 135 for level in range(5))
    env.get_wrapper_attr("set_training")(level=2)
    assert {*seen(env, range(20))} == {2}
    env = env_of(eval_env=f"{HERE}:Hall")  # the same one, with levels of its own
    assert {*seen(env, range(20))} == {0}


def test_levels_may_be_seeds() -> None:
    env = env_of(levels="seed:3,8")
    own = Hall()
    shown = {seed: own.reset(seed=seed)[0][2] for seed in range(20)}
    assert [env.reset(seed=seed)[0][2] for seed in range(20)] == [*shown.values()]
    in_training(env, [1, 1])
    assert {env.reset(seed=seed)[0][2] for seed in range(20)} == {shown[3], shown[8]}


def test_other_attributes_reach_the_environment_too() -> None:
    env = in_training(env_of(env_name=f"{HERE}:Taking"))
    with pytest.raises(
        EnvironmentUnavailable, match=r"set_env\(level=.*: --levels=level:0-4 draws"
    ):
        env.get_wrapper_attr("set_training")(level=2)
    env.get_wrapper_attr("set_training")(**{WEIGHTS: [0, 0, 0, 1, 0], "others": "these"})
    env.reset(seed=0)
    assert (env.unwrapped.level, env.unwrapped.others) == (3, "these")


@pytest.mark.parametrize(
    "weights", [[1] * 4, [0] * 5, [1, 1, 1, 1, -1], [1.5] * 5, "11111", [True] * 5]
)
def test_weights_of_a_file_are_checked(weights: Any) -> None:
    with pytest.raises(EnvironmentUnavailable, match="are no weights of --levels=level:0-4"):
        in_training(env_of(), weights)


@pytest.mark.parametrize("values", [{}, {"inference": "learner"}, {"frame_skip": 2}])
def test_the_rollout_has_the_level_of_every_step(values: dict[str, Any]) -> None:
    parts = parts_of(**values)
    with parts.make_pool() as workers:
        for iteration in (1, 2, 3):
            info = workers.collect(iteration, parts.training_attributes)
            shown = parts.rollout.observations[:-1, :, 0].copy()
            learn(parts, info)
            assert (parts.rollout.levels[..., 0] == shown).all()
    assert len(np.unique(shown)) > 1
    assert parts.rollout.dones.any()


def test_a_worker_that_is_lost_does_no_harm(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    parts = parts_of(num_workers=2, env_kwargs={"marker": str(marker)})
    lost = []
    with parts.make_pool(on_event=lambda kind, **details: lost.append(kind)) as workers:
        for iteration in (1, 2, 3):
            learn(parts, workers.collect(iteration, parts.training_attributes))
            table = parts.rollout.levels[..., 0]
            assert (table == parts.rollout.observations[:-1, :, 0]).all()
            if iteration == 1:
                marker.touch()
    assert "worker_lost" in lost


def test_the_number_of_workers_changes_nothing() -> None:
    tables = []
    for num_workers in (0, 2):
        parts = parts_of(num_workers=num_workers)
        with parts.make_pool() as workers:
            for iteration in (1, 2, 3):
                learn(parts, workers.collect(iteration, parts.training_attributes))
        tables.append({**copy_tables(parts.rollout), "scores": parts.state_dict()["levels.scores"]})
    for name, table in tables[0].items():
        np.testing.assert_array_equal(table, tables[1][name], name)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "values",
    [{}, {"level_scores": "return"}, {"levels": "seed:0-4", "level_temperature": 0.1}],
    ids=["advantage", "return", "seeds"],
)
def test_a_resumed_run_is_the_run_without_interruption(
    values: dict[str, Any], tmp_path: Path
) -> None:
    values = {**SMALL, **values}
    train(Config(**values, run_dir=str(tmp_path / "whole")))
    whole = load(tmp_path / "whole" / "checkpoints" / "last.safetensors")
    assert whole["levels.scores"].any()
    assert whole["open_episodes.lengths"].any()
    folder = tmp_path / "part"
    train(Config(**values, num_iterations=3, run_dir=str(folder)))
    train(values["env_name"], resume=str(folder), num_iterations=6, verbose=0, report=False)
    resumed = load(folder / "checkpoints" / "last.safetensors")
    assert metrics(folder) == metrics(tmp_path / "whole")
    assert "episodes_lost" not in (folder / "events.jsonl").read_text()
    for name, value in whole.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(resumed[name], value), name


def test_a_run_logs_its_levels_and_its_policy_plays_them(tmp_path: Path, call: Call) -> None:
    flags = [f"--{name}={value}" for name, value in SMALL.items() if name != "verbose"]
    code, _, errors = call(*flags, "--eval_episodes=10", f"--run_dir={tmp_path / 'run'}")
    assert (code, errors) == (0, "")
    rows = metrics(tmp_path / "run")
    assert [float(row["levels/seen"]) for row in rows][-1] == 1
    assert 0 < float(rows[-1]["levels/place"]) < 4
    assert float(rows[-1]["levels/score"]) > 0
    policy = load_policy(tmp_path / "run", f"{HERE}:Hall")
    assert len({*policy.evaluate(20).lengths}) == 5
    policy.env_attributes["level"] = 3
    assert policy.evaluate(3).lengths == [8, 8, 8]
    code, _, errors = call("evaluate", str(tmp_path / "run"), f"--env_name={HERE}:Hall")
    assert (code, errors) == (0, "")
    assert policy.env_attributes == {"level": 3}
    held_out = load_policy(tmp_path / "run", f"{HERE}:Hall", levels="level:10,20")
    assert {*held_out.evaluate(20).lengths} == {15, 25}
    assert load_policy(tmp_path / "run", f"{HERE}:Hall", levels=None).evaluate(2).lengths == [5, 5]
    evaluate = ("evaluate", str(tmp_path / "run"), f"--env_name={HERE}:Hall")
    assert call(*evaluate, "--levels=level:15", "--episodes=2")[0] == 0
    *_, made = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert made["lengths"] == [20, 20]
    code, _, errors = call(
        f"--resume={tmp_path / 'run'}", f"--env_name={HERE}:Hall", "--levels=level:0-3"
    )
    assert code == 3
    assert "leave these flags out" in errors


def test_states_that_no_run_has_are_refused(tmp_path: Path, call: Call) -> None:
    train(Config(**SMALL, num_iterations=1, run_dir=str(tmp_path / "run")))
    *others, path = saved(tmp_path / "run")
    for other in others:
        other.unlink()
    state = load(path)
    for name, value, message in (
        (
            "levels.scores",
            -torch.ones(5, dtype=torch.float64),
            "levels.scores has a number that no",
        ),
        ("levels.played", torch.full((5,), -1), "levels.played has a number that no"),
        ("levels.scores", torch.zeros(4, dtype=torch.float64), "levels.scores"),
        ("levels.weights", torch.zeros(5, dtype=torch.int64), "levels.weights are all 0"),
    ):
        path.unlink()
        save(path, {**state, name: value})
        code, _, errors = call(f"--resume={tmp_path / 'run'}", f"--env_name={HERE}:Hall")
        assert code == 3
        assert message in errors
        assert len(errors.splitlines()) == 1


def test_what_has_no_level_of_its_own_is_refused() -> None:
    parts: Any = SimpleNamespace(config=SimpleNamespace(levels="seed:0-4", end_on_life_loss=True))
    with pytest.raises(ConfigError, match="--end_on_life_loss=False"):
        check(parts)
    with pytest.raises(EnvironmentUnavailable, match=r"set_env\(room=\d\).*define one"):
        parts_of(levels="room:0-4")
