"""kill -9 of a run of a batch or a team: nothing is lost but the open episodes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from ppo.components import Components
from ppo.config.settings import settings_of
from ppo.monitor import Monitor, all_callbacks
from ppo.run.checkpoint import State, copy_state, load, newest_first
from ppo.run.resume import restore, snapshot
from tests.extras.resume.test_resume import Events
from tests.running import events, metrics, num_rows, run_main, start, wait_until

NAMES = ["tests.teams:sync", "tests.teams:Relay"]
N = 6
FLAGS = (
    *("--preset=none", f"--num_envs={N}", "--num_steps=32", "--num_minibatches=2"),
    *("--checkpoint_every=2", "--eval_episodes=0", "--num_workers=1", "--verbose=0"),
)


def kill(name: str, run: Path) -> Path:
    """Train, and kill the process in the midst of it; return its newest checkpoint."""
    line = (f"--env_name={name}", *FLAGS, "--total_steps=100000000", f"--run_dir={run}")
    process = start(*line)
    try:
        wait_until(lambda: num_rows(run) > 4, process)
    finally:
        process.kill()
        process.communicate(timeout=60)
    return newest_first(run / "checkpoints")[0]


def assert_equal(one: State, other: State, names: set[str]) -> None:
    for name in names:
        if isinstance(one[name], torch.Tensor):
            assert torch.equal(one[name], other[name]), name
        else:
            assert one[name] == other[name], name


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_killed_run_loses_its_open_episodes_only(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    saved = load(kill(name, run))
    iteration = saved["iteration"]
    # What a new process has after it has restored that checkpoint, and begun new episodes.
    flags = {**saved["config"], "env_name": name, "num_workers": 0}
    parts = Components(settings_of({**flags, "device": "cpu"}, {}))
    told: Any = Events()
    monitor = Monitor(parts, told, all_callbacks(parts))
    restore(parts, monitor, copy_state(saved))
    restored = copy_state(snapshot(parts, monitor))
    unequal = {"made_with", "config"}
    assert_equal(restored, saved, saved.keys() - unequal)
    with parts.make_pool() as pool:
        monitor.note_lost_episodes(parts.restore_environments(pool))
        assert_equal(copy_state(snapshot(parts, monitor)), saved, saved.keys() - unequal)
        info = pool.collect(iteration + 1)
    ((kind, message),) = told.told
    assert kind == "episodes_lost"
    assert message.startswith(f"resume is not exact: environments {[*range(N)]} did not repeat")
    assert info.reset_envs == [*range(N)]
    begun = parts.buffers.episode_counts - saved["episodes.begun"].numpy()
    assert (begun > 0).all()
    parts.normalize_reward.returns += 1
    parts.finish_collect(iteration + 1, info)
    assert not parts.normalize_reward.returns.any()
    # The run itself, resumed twice: the same shuffles, noise and episodes, thus the same bytes.
    ends = []
    for copy in (tmp_path / "one", tmp_path / "other"):
        shutil.copytree(run, copy, symlinks=True)
        steps = (iteration + 3) * 32 * N
        done = run_main(f"--resume={copy}", f"--env_name={name}", f"--total_steps={steps}")
        assert done.returncode == 0, done.stderr
        assert len(events(copy, "episodes_lost")) == 1
        rows = metrics(copy)
        assert [int(row["iteration"]) for row in rows] == [*range(1, iteration + 4)]
        assert rows[-1]["faults/episodes_lost"] == str(N)
        assert rows[iteration - 1]["faults/episodes_lost"] == "0"
        ends.append(load(newest_first(copy / "checkpoints")[0]))
    assert_equal(*ends, ends[0].keys() - {"config"})
    assert ends[0]["step"] == steps
    assert json.dumps(ends[0]["faults"]) == json.dumps(ends[1]["faults"])
