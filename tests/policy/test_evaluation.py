"""Evaluation in an environment that counts."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ppo import Config, load_policy, train
from ppo.envs.episodes import WHOLE_EPISODE
from ppo.monitor import Monitor, all_callbacks
from ppo.policy.evaluation import evaluate
from ppo.run.checkpoint import copy_state, save
from ppo.run.resume import snapshot
from ppo.run.summary import Evaluation
from tests.reporting import metrics_of
from tests.running import make_env, metrics, trained

SEEDS = [100, 201, 302, 403, 504, 605, 706]


def test_each_seed_is_played_once_whatever_the_number_of_environments() -> None:
    """An episode of Counting lasts 3 + seed % 7 steps, and each step earns the action."""
    lengths = [3 + seed % 7 for seed in SEEDS]
    returns = [12.0 * length for length in lengths]
    for num_envs in (1, 2, 3, 7, 9):
        envs = [make_env("tests.environments:Counting-v0") for _ in range(num_envs)]
        seen: list[np.ndarray] = []

        def act(observations: np.ndarray, *_: Any, seen: list[np.ndarray] = seen) -> list[int]:
            seen += list(observations)
            return [12] * len(observations)

        result = evaluate(act, envs, SEEDS)
        assert result == Evaluation(
            episodes=7,
            mean=pytest.approx(np.mean(returns)),
            std=pytest.approx(np.std(returns)),
            returns=returns,
            lengths=lengths,
            unfinished=0,
            env={},
        )
        assert sorted(seed for seed, step in seen if step == 0) == SEEDS
        assert len(seen) == sum(lengths)


def test_evaluation_changes_nothing_and_repeats_itself(tmp_path: Path) -> None:
    parts = trained("Counting-v0", total_steps=2048, normalize_observations=True)
    monitor = Monitor(parts, None, all_callbacks(parts))  # type: ignore[arg-type]
    save(tmp_path / "before", copy_state(snapshot(parts, monitor)))
    first, second = (parts.policy().evaluate(20, num_envs=8) for _ in range(2))
    save(tmp_path / "after", copy_state(snapshot(parts, monitor)))
    assert first == second
    assert len(first.returns) == 20
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


class Lives(gymnasium.Env):
    """A game of three episodes, of 1, 2 and 3 steps, each of which earns 1."""

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        if not hasattr(self, "left") or not self.left:
            self.left = [1, 2, 3]
        self.steps = self.left.pop(0)
        return np.zeros(1), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps -= 1
        over = not self.steps and not self.left
        return np.zeros(1), 1.0, not self.steps, False, {WHOLE_EPISODE: (6.0, 6)} if over else {}


def test_a_lost_life_does_not_end_an_episode() -> None:
    result = evaluate(
        lambda observations, *_: [0] * len(observations),
        [Lives(), Lives()],
        SEEDS,
    )
    assert result == Evaluation(
        episodes=7,
        mean=6.0,
        std=0.0,
        returns=7 * [6.0],
        lengths=7 * [6],
        unfinished=0,
        env={},
    )


def test_an_episode_that_does_not_end_is_cut_off_and_counts_with_its_return_so_far() -> None:
    """Of Counting the seed says when it ends: after 5, 8, 4, 7, 3, 6 and 9 steps."""
    envs = [make_env("tests.environments:Counting-v0") for _ in range(3)]
    result = evaluate(lambda observations, *_: [12] * len(observations), envs, SEEDS, max_steps=6)
    lengths = [min(6, 3 + seed % 7) for seed in SEEDS]
    assert result.lengths == lengths
    assert result.returns == [12.0 * length for length in lengths]
    assert result.unfinished == sum(3 + seed % 7 > 6 for seed in SEEDS) > 0


def test_an_environments_own_metrics_are_averaged_over_the_episodes_that_report_them() -> None:
    seeds = [*range(10), 38, 182, 183]
    reports = [metrics_of(seed) for seed in seeds]
    for num_envs, max_steps in ((1, 4), (3, 100)):
        envs = [make_env("tests.reporting:Reporting") for _ in range(num_envs)]
        found = evaluate(lambda x, *_: [0] * len(x), envs, seeds, max_steps=max_steps).env
        for name in ("is_success", "success_rate", "distance", "energy"):
            mean = np.mean([one[name] for one in reports])
            assert found[name] == pytest.approx(mean)
        assert found["late"] == pytest.approx((0 + 38) / 2)
        assert found.keys() == reports[0].keys()
    envs = [make_env("tests.reporting:Reporting")]
    cut_off = evaluate(lambda x, *_: [0] * len(x), envs, seeds[:2], max_steps=3)
    assert cut_off.unfinished == 2
    assert cut_off.env == {"step": 3.0}  # of the last info that there was


def test_evaluations_while_training_change_nothing_and_keep_the_best(tmp_path: Path) -> None:
    """--eval_every adds a column; all others stay as they are."""
    values = {
        "total_steps": 8 * 64,
        "num_envs": 4,
        "num_steps": 16,
        "num_workers": 0,
        "eval_episodes": 3,
        "report": False,
    }
    folders = [tmp_path / "without", tmp_path / "every", tmp_path / "other"]
    for folder, eval_every in zip(folders, (None, 1, 3), strict=True):
        config = Config(
            "CartPole-v1", **values, eval_every=eval_every, run_dir=str(folder), logger="none"
        )
        train(config)
    without, every, other = (metrics(folder) for folder in folders)
    returns = [[row.pop("evaluation_return_mean") for row in rows] for rows in (every, other)]
    assert without == every == other
    assert returns[1] == [returns[0][i] if (i + 1) % 3 == 0 else "" for i in range(8)]
    assert not (folders[0] / "checkpoints" / "best.safetensors").exists()
    best = returns[0].index(max(returns[0], key=float))
    policy = load_policy(folders[1] / "checkpoints" / "best.safetensors")
    assert policy.evaluate(3).mean == pytest.approx(float(returns[0][best]), rel=1e-5)
