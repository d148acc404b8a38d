"""Settings of a running run, changed by ppo set."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import imageio_ffmpeg  # noqa: F401, which videos need
import pytest
import torch

from ppo import Config, Learner, train
from ppo.__main__ import main
from ppo.extras.live.changes import PENDING, forget_changes, read_changes
from ppo.run.checkpoint import load, newest_first
from ppo.system.files import read_json, write_json
from tests.end_to_end.test_untrusted_files import EVIL, damage, spoil
from tests.running import BRIEF, CARTPOLE, ROOT, Call, at_once, command, metrics

CHANGES = {"learning_rate": "adaptive:0.01", "entropy_coef": "linear:0.02", "num_epochs": 2}


class Asking(Learner):
    """Asks for changes in iteration 5, as ppo set does meanwhile."""

    def update(self, batch: Any, iteration: int) -> Any:
        if iteration == 5 and self.config.run_dir:  # not if it is resumed
            write_json(Path(self.config.run_dir) / PENDING, CHANGES)
        return super().update(batch, iteration)


def test_a_run_resumed_before_or_after_a_change_is_the_run_that_was_not_interrupted(
    tmp_path: Path, call: Call
) -> None:
    run = tmp_path / "run"
    values = {**CARTPOLE, "total_steps": 10 * 256, "checkpoint_every": 4, "eval_episodes": 0}
    train(Config(**values, run_dir=str(run)), learner=Asking)
    rows = metrics(run)
    rates = [float(row["learning_rate"]) for row in rows]
    assert rates[:6] == [1e-3] * 5 + [1e-2]
    assert [row["gradient_steps"] for row in rows] == ["16"] * 5 + ["8"] * 5
    whole = load(newest_first(run / "checkpoints")[0])
    assert CHANGES.items() <= whole["config"].items()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [(event["iteration"], event["kind"]) for event in events] == [(5, "set")]
    assert events[0]["message"].endswith(
        "--learning_rate=adaptive:0.01 --entropy_coef=linear:0.02 --num_epochs=2"
    )
    for iteration in (4, 8):
        copy = tmp_path / f"from-{iteration}"
        shutil.copytree(run, copy, symlinks=True)
        for path in newest_first(copy / "checkpoints"):
            if int(path.stem) > iteration * 256:
                path.unlink()
        code, _, errors = call(
            f"--resume={copy}", "--learner=tests.extras.live.test_changes:Asking"
        )
        assert (code, "not exact" in errors) == (0, False)
        resumed = load(newest_first(copy / "checkpoints")[0])
        assert metrics(copy) == rows
        for name, value in whole.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(resumed[name], value), name


def test_values_given_on_resuming_take_precedence_over_earlier_changes(tmp_path: Path) -> None:
    write_json(tmp_path / "set-7.json", CHANGES)
    write_json(tmp_path / "set.json", {"num_epochs": 3})
    (tmp_path / "set-5-old.json").write_text("a user's own file")
    forget_changes(tmp_path, ["num_epochs", "seed"])
    kept = {name: CHANGES[name] for name in ("learning_rate", "entropy_coef")}
    assert read_json(tmp_path / "set-7.json") == kept
    assert read_json(tmp_path / "set.json") == {}


def events_of(run: Path, kind: str) -> list[dict[str, Any]]:
    path = run / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_is_changed_killed_and_resumed(tmp_path: Path, call: Call) -> None:
    run = tmp_path / "run"
    endless = [flag for flag in BRIEF if "steps=2560" not in flag]
    process = subprocess.Popen(
        command(*endless, "--checkpoint_every=2", f"--run_dir={run}"),
        cwd=tmp_path.parent,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    try:
        wait_until((run / "metrics.csv").exists)
        assert call("set", str(run), "lr=5e-5", "target_kl=none")[0] == 0
        assert call("set", str(run), "clip_coef=linear:0.3")[0] == 0
        wait_until(lambda: events_of(run, "set") and not (run / PENDING).exists())
        changed = max(event["iteration"] for event in events_of(run, "set"))
        wait_until(lambda: len(metrics(run)) > changed + 4)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        errors = process.communicate()[1]
    assert "on: --learning_rate=5e-05 --target_kl=None" in errors
    end = len(metrics(run)) + 3
    code, _, errors = call(f"--resume={run}", f"--num_iterations={end}")
    assert code == 0
    assert "learning_rate" not in errors
    rates = [float(row["learning_rate"]) for row in metrics(run)]
    assert rates[changed:] == [5e-5] * (len(rates) - changed)  # from the iteration after the event
    assert rates[0] == Config.learning_rate
    config = load(newest_first(run / "checkpoints")[0])["config"]
    assert (config["learning_rate"], config["clip_coef"]) == (5e-5, "linear:0.3")
    code, _, error = call("set", str(run), "lr=1e-5")
    assert (code, error.count("\n")) == (2, 1)
    assert f"{run} is not running: give the flags with --resume={run}" in error


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "gamma=0.9",
            "ppo set cannot change gamma, but learning_rate, num_epochs, gae_lambda, clip_co",
        ),
        ("learning_rate=fast", "--learning_rate=fast: expected number > 0 and <= 1e+30 or linear"),
        ("num_epochs=3", "nowhere is not running: give the flags with --resume=nowhere"),
    ],
)
def test_what_cannot_change_is_refused_with_one_sentence(
    setting: str, message: str, call: Call
) -> None:
    code, output, error = call("set", "nowhere", setting)
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert error.startswith(f"error: {message}")


def test_the_flag_for_a_run_that_has_ended_can_be_pasted(call: Call) -> None:
    assert call("set", "mein Lauf", "num_epochs=3")[2].endswith(" with '--resume=mein Lauf'\n")


@pytest.mark.slow
def test_an_untrusted_change_is_not_imported_by_a_resumed_run(
    cartpole_copy: Path, tmp_path: Path
) -> None:
    (tmp_path / "evil.py").write_text(EVIL)
    for values in ({"eval_env": f"{tmp_path}/evil.py:E"}, {"wrapper": [f"{tmp_path}/evil.py:f()"]}):
        (cartpole_copy / "set-21.json").write_text(json.dumps(values))
        done = subprocess.run(
            command(f"--resume={cartpole_copy}", "--total_steps=5632", "--eval_episodes=1"),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 3
        assert f"ppo set cannot change {min(values)}" in done.stderr
        assert len(metrics(cartpole_copy)) == 20
        assert not (tmp_path / "imported").exists()


@pytest.mark.slow
def test_a_run_goes_on_without_a_change_that_it_cannot_accept(tmp_path: Path, call: Call) -> None:
    run = tmp_path / "run"
    endless = [flag for flag in BRIEF if "steps=2560" not in flag]
    process = subprocess.Popen(
        command(*endless, f"--run_dir={run}"), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until((run / "metrics.csv").exists)
        placed: list[Any] = ['{"env_name": "evil.py:E"}', "[" * 10**5, os.mkfifo, Path.mkdir]
        for count, content in enumerate(placed, 1):
            damage(tmp_path / PENDING, content)
            (tmp_path / PENDING).rename(run / PENDING)
            wait_until(lambda count=count: len(events_of(run, "set_refused")) == count)
        assert call("set", str(run), "num_epochs=2")[0] == 0
        wait_until(lambda: events_of(run, "set"))
        last = len(metrics(run))
        wait_until(lambda: len(metrics(run)) > last + 2)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        errors = process.communicate()[1]
    assert process.returncode == 143
    kept = sorted(run.glob("set-*.json.refused-*"))
    assert len(kept) == len(placed)
    assert next(x.read_text() for x in kept if x.is_file()) == placed[0]
    assert "cannot be used (ppo set cannot change env_name): it is not applied, and kept as" in (
        errors
    )
    assert call(f"--resume={run}", f"--num_iterations={len(metrics(run)) + 2}")[0] == 0


def test_changes_asked_for_at_once_are_all_kept(
    cartpole_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_slowly(path: Path) -> Any:
        try:
            return read_changes(path)
        finally:
            time.sleep(0.5)

    monkeypatch.setattr("ppo.extras.live.command.read_changes", read_slowly)
    asked = ("num_epochs=2", "gae_lambda=0.9", "learning_rate=1e-4")
    with (cartpole_copy / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = [["set", str(cartpole_copy), setting] for setting in asked]
        assert at_once(main, *lines) == [0] * 3
    found = read_json(cartpole_copy / PENDING)
    assert found == {"num_epochs": 2, "gae_lambda": 0.9, "learning_rate": 1e-4}


@pytest.mark.parametrize("content", ["{", os.mkfifo])
def test_set_overwrites_no_file_that_it_has_not_written(
    content: Any, cartpole_copy: Path, call: Call
) -> None:
    path = spoil(cartpole_copy, PENDING, content)
    with (cartpole_copy / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, errors = call("set", str(cartpole_copy), "num_epochs=2")
    assert (code, out, errors.count("\n")) == (3, "", 1)
    assert errors.startswith(f"error: {path} cannot be used (")
    assert not path.is_file() or path.read_text() == content
