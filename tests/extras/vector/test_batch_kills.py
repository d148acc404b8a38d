"""kill -9 of a run of a batch or a team: nothing is lost but the open episodes."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from ppo.run.checkpoint import State, load, newest_first
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
    # Resumed twice: the same shuffles, noise and episodes, thus the same bytes.
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
