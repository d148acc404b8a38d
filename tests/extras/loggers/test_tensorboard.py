"""Event files for TensorBoard, read back by TensorBoard."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ppo.config.config import Config
from ppo.extras.loggers.tensorboard import TensorBoardLogger


def make(folder: Path, first_step: int = 0, **flags: Any) -> TensorBoardLogger:
    run: Any = SimpleNamespace(path=folder)
    return TensorBoardLogger(Config(**flags), run, (), first_step=first_step)


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    return events


def test_metrics_without_a_value_are_left_out(tmp_path: Path) -> None:
    logger = make(tmp_path)
    logger.log({"step": 10, "loss": 0.5, "episode_return_mean": None}, None)
    logger.log({"step": 20, "loss": 0.25, "episode_return_mean": 3.0}, None)
    logger.close()
    events = read(tmp_path)
    assert [(event.step, event.value) for event in events.Scalars("losses/loss")] == [
        (10, 0.5),
        (20, 0.25),
    ]
    assert [event.step for event in events.Scalars("rollout/episode_return_mean")] == [20]


def test_a_resumed_run_replaces_what_was_not_saved(tmp_path: Path) -> None:
    first = make(tmp_path)
    for step in (10, 20, 30):
        first.log({"step": step, "loss": float(step)}, None)
    first.close()
    second = make(tmp_path, first_step=10)
    second.log({"step": 20, "loss": -20.0}, None)
    second.close()
    values = {event.step: event.value for event in read(tmp_path).Scalars("losses/loss")}
    assert values == {10: 10, 20: -20}


def test_dashboards_of_other_trainers_find_their_names_and_units(tmp_path: Path) -> None:
    """Entropy is negative in Stable-Baselines3, whose loss of values is not halved."""
    row = {"step": 10, "entropy": 0.5, "value_loss": 2.0, "episode_return_mean": None, "mine": 7.0}
    shown = {}
    for names in ("sb3", "cleanrl"):
        logger = make(tmp_path / names, metric_names=names)
        logger.log(row, None)
        logger.close()
        events = read(tmp_path / names)
        shown[names] = {tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"]}
    assert shown["sb3"] == {
        "time/total_timesteps": 10,
        "train/entropy_loss": -0.5,
        "train/value_loss": 4.0,
        "mine": 7.0,
    }
    assert shown["cleanrl"] == {
        "global_step": 10,
        "losses/entropy": 0.5,
        "losses/value_loss": 2.0,
        "mine": 7.0,
    }
