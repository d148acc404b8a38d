"""Open episodes: followed over rollouts, and played again by workers of a resumed run."""

import time
from multiprocessing import parent_process
from typing import Any

import numpy as np
import pytest

from ppo.envs.worker import Worker
from ppo.errors import Stopped
from tests.running import running
from tests.worlds import Counting, Film


def second_worker(run: Any) -> Worker:
    """Return a worker that knows nothing of the one that has collected."""
    arrays = {name: table.copy() for name, table in run.rollout.tables.items()}
    ids = range(run.config.num_envs)
    return Worker(run.spaces, arrays, ids, run.make_actor)


@pytest.mark.parametrize("env", [Counting, Film, "BreakoutNoFrameskip-v4"])
def test_open_episodes_are_restored_where_the_last_row_shows_the_same(env, tmp_path):
    flags = {"end_on_life_loss": True} if isinstance(env, str) else {}
    with running(env, tmp_path, num_envs=2, **flags) as run:
        run.collect()
        run.collect()
        worker = second_worker(run)
        worker.tables["observations"][-1, 1] += 1  # which environment 1 does not show
        before = worker.counts.copy()
        assert worker.restore(run.open_episodes.to_replay(), {}) == [1]
        assert (worker.counts - before).tolist() == [0, 1]
        worker.collect(3, {})
        run.collect()
        assert worker.report.started == []
        for name in ("observations", "actions", "rewards"):
            np.testing.assert_array_equal(
                worker.tables[name][:, 0], run.rollout.tables[name][:, 0], err_msg=name
            )


class Stuck(Counting):
    """Hangs as it is made in a worker."""

    def __init__(self) -> None:
        if parent_process():
            time.sleep(1e6)


def test_a_worker_that_hangs_does_not_keep_the_trainer_from_stopping(tmp_path):
    """The episodes are more than a pipe holds."""
    with running(Stuck, tmp_path, num_workers=1) as run:
        run.open_episodes.actions = [[np.zeros((100_000, 1), np.int64)] for _ in range(4)]
        run.open_episodes.lengths[:] = 100_000
        run.signals.is_urgent = True
        with pytest.raises(Stopped):
            run._restore_episodes()
