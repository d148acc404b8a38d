"""Rollouts of environments that count, where every row follows from episode, step and action; and
workers that are lost."""

from typing import Any

import numpy as np
import pytest

from ppo.envs.seeding import Stream, integer_seed
from ppo.run import Run
from tests.running import running
from tests.worlds import Counting, Fragile, Masked

T, N = 12, 5
FLAGS = {"num_envs": N, "num_steps": T}


def joined(run: Run, count: int = 3) -> tuple[dict[str, Any], list[Any], list[Any]]:
    """Collect rollouts and join them; their episodes and last observations count steps from the
    run's start."""
    pieces: dict[str, list[Any]] = {}
    episodes, lasts = [], []
    for number in range(count):
        for table in ("observations", "actions", "rewards", "terminations", "truncations"):
            run.rollout.tables[table][: T if number else T + 1] = 7  # what is left out would show
        rollout = run.collect()
        report = rollout.report
        episodes += [x._replace(step=x.step + number * T) for x in report.episodes]
        lasts += [x._replace(step=x.step + number * T) for x in report.truncated]
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            pieces.setdefault(name, []).append(rollout.tables[name][:T].copy())
    return {name: np.concatenate(x) for name, x in pieces.items()}, episodes, lasts


def assert_counts(tables: dict[str, Any], episodes: list[Any], lasts: list[Any]) -> None:
    expected_episodes, expected_lasts = [], []
    for environment in range(N):
        episode = step = 0
        for t in range(len(tables["rewards"])):
            seed = integer_seed(0, Stream.EPISODE, environment, episode) % 2**16
            assert tables["observations"][t, environment].tolist() == [seed, step]
            assert tables["rewards"][t, environment] == tables["actions"][t, environment] + 10
            step += 1
            ended = step == 3 + seed % 7
            assert tables["terminations"][t, environment] == (ended and seed % 2 == 1)
            assert tables["truncations"][t, environment] == (ended and seed % 2 == 0)
            if ended:
                total = tables["rewards"][t - step + 1 : t + 1, environment].sum()
                expected_episodes.append((t, environment, total, step, {}))
                if seed % 2 == 0:
                    expected_lasts.append((t, environment, [seed, step]))
                episode, step = episode + 1, 0
    assert [tuple(x) for x in episodes] == sorted(expected_episodes)
    found = [(x.step, x.environment, x.rows["observations"].tolist()) for x in lasts]
    assert found == sorted(expected_lasts)


@pytest.mark.parametrize(
    "flags", [{}, {"num_workers": 2}, {"inference": "learner"}], ids=["here", "two", "learner"]
)
def test_three_rollouts_join_without_gap_or_repeat_and_alike_in_any_number_of_workers(
    flags, tmp_path
):
    with running(Counting, tmp_path / "here", **FLAGS) as run:
        expected = joined(run)[0]
    with running(Counting, tmp_path / "other", **FLAGS, **flags) as run:
        found = joined(run)
    assert_counts(*found)
    for name, table in expected.items():
        np.testing.assert_array_equal(found[0][name], table)
    drawn = expected["actions"].reshape(3, T, N).transpose(0, 2, 1).reshape(3 * N, T)
    assert len(np.unique(drawn, axis=0)) == 3 * N  # randomness of their own


@pytest.mark.parametrize("flags", [{"env": Masked, "model": "mlp"}, {"env": Counting}], ids=str)
@pytest.mark.parametrize("model", ["mlp", "lstm"])
def test_the_learners_actions_states_and_masks_are_those_of_workers(flags, model, tmp_path):
    found = []
    for inference in ("worker", "learner"):
        with running(
            flags["env"], tmp_path / inference, inference=inference, model=model, share_trunk=True
        ) as run:
            tables = run.collect().tables
            found.append({name: table.copy() for name, table in tables.items()})
    for name, table in found[0].items():
        np.testing.assert_allclose(found[1][name], table, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("inference", ["worker", "learner"])
def test_a_lost_workers_part_of_the_rollout_is_collected_again(inference, tmp_path):
    """Only its environments begin anew, and all rows are as they should be."""
    flags = {**FLAGS, "num_workers": 2, "inference": inference}
    kwargs = {"place": str(tmp_path / "now")}
    with running(Fragile, tmp_path / "run", env_kwargs=kwargs, **flags) as run:
        run.collect()
        before = run.rollout.counts.copy()
        open_steps = run.rollout.observations[-1, :, 1].copy()
        (tmp_path / "now").touch()
        rollout = run.collect()
        assert rollout.report.started == [2, 3, 4]
        assert not (tmp_path / "now").exists()
        first = rollout.observations[0]
        np.testing.assert_array_equal(first[:2, 1], open_steps[:2])
        np.testing.assert_array_equal(first[2:, 1], 0)
        for i in range(N):
            seed, step = first[i]
            number = before[i] - 1 if i < 2 else None
            for t in range(T):
                assert rollout.observations[t, i].tolist() == [seed, step]
                assert rollout.rewards[t, i] == rollout.actions[t, i] + 10
                step += 1
                assert rollout.dones[t, i] == (step == 3 + seed % 7)
                if rollout.dones[t, i]:
                    seed, step = rollout.observations[t + 1, i, 0], 0
                    if number is not None:
                        number += 1
                        assert seed == integer_seed(0, Stream.EPISODE, i, number) % 2**16
        assert "worker of environments 2 to 4" in (tmp_path / "run" / "notes.txt").read_text()
        run.collect()
