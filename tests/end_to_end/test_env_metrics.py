"""An environment's own numbers, from its info to every file, by main.py in real processes."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from ppo.envs.seeding import Stream, integer_seed
from ppo.run.reader import read_run
from tests.reporting import KILL_AT, metrics_of
from tests.running import metrics, run_main

NUM_ENVS, NUM_STEPS, NUM_ITERATIONS = 2, 12, 20
ENV_NAME = "--env_name=tests.reporting:Reporting"
SIZE = f"--num_envs={NUM_ENVS} --num_steps={NUM_STEPS}"
FLAGS = (
    *(ENV_NAME, "--preset=none", *SIZE.split(), "--num_minibatches=1", "--num_workers=0"),
    f"--total_steps={NUM_ENVS * NUM_STEPS * NUM_ITERATIONS}",
    *("--eval_episodes=3", "--checkpoint_every=3", "--log_every=1"),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a report and an evaluation; its output is in said.txt."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    shown = "--show=env/success_rate,sucess_rate"
    done = run_main(*FLAGS, shown, "--report", f"--run_dir={folder}")
    assert done.returncode == 0, done.stderr
    (folder / "said.txt").write_text(done.stdout + done.stderr)
    return folder


def expected(name: str, iteration: int) -> float:
    """Average the last 100 episodes that report a metric, by their seeds; NaN without any."""
    values = []
    for episode in range(iteration * NUM_STEPS // 4):
        for env_id in range(NUM_ENVS):
            found = metrics_of(integer_seed(0, Stream.EPISODE, env_id, episode))
            values += [found[name]] if name in found else []
    return float(np.mean(values[-100:])) if values else np.nan


def test_the_metrics_are_means_of_the_last_episodes_that_report_them(whole: Path) -> None:
    found = read_run(whole).metrics
    names = [name for name in found if name.startswith("env/")]
    assert sorted(names) == sorted(f"env/{name}" for name in metrics_of(0) | {"late": 0})
    for name in names:
        means = [expected(name.removeprefix("env/"), i + 1) for i in range(NUM_ITERATIONS)]
        np.testing.assert_allclose(found[name], means, rtol=1e-5)
    header = (whole / "metrics.csv").read_text().partition("\n")[0]
    assert header.endswith(",env/late")  # it came later than the others
    assert np.isnan(found["env/late"][0])


def test_the_console_the_summary_and_the_report_have_them(whole: Path) -> None:
    said = (whole / "said.txt").read_text()
    first, *_, last = [line for line in said.splitlines() if line.startswith("step ")]
    assert f", env/success_rate {expected('success_rate', 1):.4g}, " in first
    assert f", env/success_rate {expected('success_rate', NUM_ITERATIONS):.4g}, " in last
    assert ", sucess_rate -, " in first  # which is none
    seeds = [integer_seed(0, Stream.EVALUATION, episode) for episode in range(3)]
    rate = np.mean([metrics_of(seed)["success_rate"] for seed in seeds])
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["evaluation"]["env"]["success_rate"] == pytest.approx(rate)
    page = (whole / "report.html").read_text()
    assert "<figcaption>env/success_rate</figcaption>" in page


@pytest.mark.slow
def test_evaluate_prints_and_writes_them(whole: Path) -> None:
    output = whole.parent / "evaluation.json"
    flags = (ENV_NAME, "--episodes=20", "--seed=3", f"--output={output}")
    done = run_main("evaluate", str(whole), *flags)
    assert (done.returncode, done.stderr) == (0, "")
    seeds = [integer_seed(3, Stream.EVALUATION, episode) for episode in range(20)]
    rate = np.mean([metrics_of(seed)["success_rate"] for seed in seeds])
    (entry,) = json.loads(output.read_text())
    assert entry["env"]["success_rate"] == entry["env"]["is_success"] == pytest.approx(rate)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("environment: ")]
    assert f"success_rate={rate:.4g}" in line.split()


@pytest.mark.slow
def test_a_run_that_was_killed_has_the_same_metrics(whole: Path, tmp_path: Path) -> None:
    """The kill is in iteration 17, after the column env/late was added to a file that a checkpoint
    of iteration 15 continues."""
    folder = tmp_path / "run"
    killed = run_main(*FLAGS, f"--run_dir={folder}", env={**os.environ, KILL_AT: "50"})
    assert killed.returncode == -9
    assert len(metrics(folder)) == 16
    done = run_main(ENV_NAME, f"--resume={folder}")
    assert done.returncode == 0, done.stderr
    heads = [(run / "metrics.csv").read_text().partition("\n")[0] for run in (folder, whole)]
    assert heads[0] == heads[1]
    assert metrics(folder) == metrics(whole)
    ends = [json.loads((run / "summary.json").read_text()) for run in (folder, whole)]
    assert ends[0]["evaluation"] == ends[1]["evaluation"]
