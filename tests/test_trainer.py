"""Training from Python: results, and the state that is saved however a run ends."""

import json
import re
import signal
from itertools import count
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from ppo import Callback, Config, Learner, train
from ppo.errors import ConfigError, Interrupted
from ppo.run.checkpoint import load, newest_first
from tests.running import Call, metrics

TINY = {
    "env_name": "CartPole-v1",
    "preset": "none",
    "num_envs": 2,
    "num_steps": 16,
    "num_minibatches": 1,
    "num_workers": 0,
    "total_steps": 4 * 32,
    "eval_episodes": 2,
    "verbose": 0,
    "report": False,
}


def config(folder: Path, **values: Any) -> Config:
    return Config(**{**TINY, "run_dir": str(folder), **values})


def steps(folder: Path) -> list[int]:
    return sorted(load(path)["step"] for path in newest_first(folder / "checkpoints"))


def test_the_summary_and_the_path_of_the_last_checkpoint_are_returned(tmp_path: Path) -> None:
    summary = train(config(tmp_path / "run"))
    assert load(Path(summary.checkpoint))["iteration"] == 4
    assert summary.content() == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary.steps, summary.evaluation.episodes) == (128, 2)
    assert [row["step"] for row in metrics(tmp_path / "run")] == ["32", "64", "96", "128"]


def test_checkpoints_are_saved_at_the_start_when_due_and_at_the_end(tmp_path: Path) -> None:
    train(config(tmp_path, checkpoint_every=3))
    assert steps(tmp_path) == [0, 96, 128]


def test_milestones_of_a_resumed_run_have_the_bytes_of_a_run_without_interruption(
    tmp_path: Path,
) -> None:
    class StopsAfterThree(Callback):
        def on_iteration(self, run: Any) -> None:
            if run.iteration == 3:
                run.stop("half of it")

    train(config(tmp_path / "whole", keep_every=2))
    train(config(tmp_path / "resumed", keep_every=2), callbacks=[StopsAfterThree()])
    train(config(tmp_path / "resumed", keep_every=2, run_dir=None, resume=tmp_path / "resumed"))
    whole, resumed = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "milestones").iterdir()}
        for name in ("whole", "resumed")
    )
    assert whole.keys() == {f"{step:012d}.safetensors" for step in (64, 128)}
    assert resumed == whole
    assert steps(tmp_path / "whole") == [0, 64, 128]


def test_a_checkpoint_is_saved_when_the_last_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_minutes_each = count(0, 240)  # 8 minutes after two iterations, 12 after three
    clock = SimpleNamespace(monotonic=lambda: next(four_minutes_each))
    monkeypatch.setattr("ppo.callbacks.builtin.time", clock)
    train(config(tmp_path, checkpoint_every=1000, total_steps=5 * 32))
    assert steps(tmp_path) == [0, 96, 160]


class Stopping(Learner):
    """Do something in the third iteration."""

    def update(self, batch: Any, iteration: int) -> dict[str, float]:
        if iteration == 3:
            self.interfere()
        return super().update(batch, iteration)

    def interfere(self) -> None:
        raise RuntimeError("a wheel came off")


class Uninterrupted(Stopping):
    """Do nothing in the third iteration."""

    def interfere(self) -> None:
        pass


class Signalled(Stopping):
    """Receive Ctrl-C during an update."""

    def interfere(self) -> None:
        signal.raise_signal(signal.SIGINT)


class Urgent(Stopping):
    """Receive SIGTERM during an update."""

    def interfere(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_an_error_leaves_the_state_after_the_last_whole_iteration(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a wheel came off"):
        train(config(tmp_path), learner=Stopping)
    assert steps(tmp_path) == [0, 64]
    assert len(metrics(tmp_path)) == 2


def test_the_call_that_resumes_a_run_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "mein Lauf"
    given = {"learner": "tests.test_trainer:Urgent"}
    with pytest.raises(Interrupted) as caught:
        train(config(folder, **given))
    call = re.search(r"train\(\.\.\., (.*)\) continues$", str(caught.value))
    assert call
    assert eval(f"dict({call[1]})") == {"resume": str(folder), **given}
    with pytest.raises(ConfigError) as refused:
        train(config(folder))
    assert f"go on with its run by '--resume={folder}'" in str(refused.value)


@pytest.mark.parametrize(("learner", "step"), [(Signalled, 96), (Urgent, 64)])
def test_an_interrupt_ends_the_iteration_and_an_urgent_signal_abandons_it(
    learner: type[Learner], step: int, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted, match=f"after step {step}: stopped, saved in"):
        train(config(tmp_path), learner=learner)
    assert steps(tmp_path)[-1] == step
    assert len(metrics(tmp_path)) == step // 32
    events = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    assert [event["kind"] for event in events] == ["signal"]


class Closing(gymnasium.Env):
    """Receive further signals as it is closed after training, not after the first look."""

    steps = 0
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **arguments: Any) -> tuple[np.ndarray, dict]:
        super().reset(**arguments)
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, True, False, {}

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            if self.steps > 1:
                signal.raise_signal(number)


@pytest.mark.parametrize("learner", [Urgent, Learner])
def test_a_script_gets_its_handlers_back_and_no_signal_from_before(
    learner: type[Learner], tmp_path: Path
) -> None:
    received: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
    before = [
        signal.signal(number, lambda number, frame: received.append(number)) for number in numbers
    ]
    own = [signal.getsignal(number) for number in numbers]
    try:
        if learner is Urgent:
            with pytest.raises(Interrupted, match="SIGTERM after step 64: stopped, saved in"):
                train(Closing, config(tmp_path, eval_episodes=0), learner=learner)
        else:
            train(Closing, config(tmp_path, eval_episodes=0))
        assert [signal.getsignal(number) for number in numbers] == own
        assert (received, steps(tmp_path)[-1]) == ([], 64 if learner is Urgent else 128)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_a_run_that_was_cut_short_is_resumed_to_the_same_end(tmp_path: Path) -> None:
    train(config(tmp_path / "whole"), learner=Uninterrupted)
    with pytest.raises(RuntimeError):
        train(config(tmp_path / "cut"), learner=Stopping)
    train(Config(**{**TINY, "resume": str(tmp_path / "cut")}), learner=Uninterrupted)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    last = [
        newest_first(tmp_path / run / "checkpoints")[0].read_bytes() for run in ("cut", "whole")
    ]
    assert last[0] == last[1]


def test_two_configs_are_refused():
    plain = Config(env_name="CartPole-v1")
    with pytest.raises(ConfigError, match="train takes one Config"):
        train(plain, plain)


def decaying(remaining: float) -> float:
    return 1e-3 * remaining


def test_a_schedule_that_was_a_function_is_given_anew_or_asked_for(
    tmp_path: Path, call: Call
) -> None:
    folder = tmp_path / "run"
    train(config(folder, learning_rate=decaying, entropy_coef=lambda remaining: 0.1 * remaining))
    resume = (f"--resume={folder}", "--verbose=0", "--total_steps=160")
    code, _, error = call(*resume, "--learning_rate=1e-3")
    assert code == 3
    assert "<lambda> as entropy_coef, which no file holds: give it again, by train(" in error
    assert error.count("\n") == 1
    code, _, error = call(*resume, "--learning_rate=1e-3", "--entropy_coef=linear:0.1")
    assert (code, error) == (0, "")
    again = {"learning_rate": decaying, "entropy_coef": 0.2, "total_steps": 192, "verbose": 0}
    assert train("CartPole-v1", resume=str(folder), **again).steps == 192
    rates = [float(row["learning_rate"]) for row in metrics(folder)]
    assert rates == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4, 1e-3, 1e-3 / 6], rel=1e-5)


def test_a_second_training_in_another_thread_is_refused(tmp_path: Path) -> None:
    """Both at once would share the process's signals, its random numbers and its helpers."""
    found: list[Any] = []

    def train_too() -> None:
        try:
            found.append(train(config(tmp_path / "second")))
        except ConfigError as error:
            found.append(error)

    class InAThread(Callback):
        def on_iteration(self, run: Any) -> None:
            thread = Thread(target=train_too)
            thread.start()
            thread.join()

    alone = metrics(Path(train(config(tmp_path / "alone")).checkpoint).parents[1])
    train(config(tmp_path / "first"), callbacks=[InAThread()])
    assert "train is being called in another thread of this process" in str(found[0])
    assert metrics(tmp_path / "first") == alone
    assert not (tmp_path / "second").exists()
    train_too()
    assert found[-1].steps == 128
