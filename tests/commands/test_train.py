"""From a command line to the settings of a run."""

import json
from pathlib import Path

import pytest

from ppo.commands.train import configure
from ppo.config.config import Config
from ppo.errors import CheckpointError


def test_an_old_id_is_replaced_and_said() -> None:
    _, settings = configure(["--env_name=LunarLander-v2", "--preset=none"])
    assert settings.config.env_name == "LunarLander-v3"
    assert settings.notes == ("LunarLander-v2 is now LunarLander-v3",)


def test_a_resumed_run_keeps_its_settings_unless_flags_say_otherwise(cartpole_copy: Path) -> None:
    before = configure([f"--resume={cartpole_copy}"])[1].given
    assert (before.env_name, before.num_steps, before.learning_rate) == ("CartPole-v1", 64, 1e-5)
    assert (before.resume, before.run_dir) == (str(cartpole_copy), None)
    given, settings = configure([f"--resume={cartpole_copy}", "--total_steps=9999"])
    assert settings.given == Config(**{**vars(before), "total_steps": 9999})
    assert given["run_dir"] == "none"
    assert settings.notes == ()
    (cartpole_copy / "checkpoints" / "last.safetensors").unlink()
    for path in (cartpole_copy / "checkpoints").iterdir():
        path.write_bytes(b"damaged")
    with pytest.raises(CheckpointError):
        configure([f"--resume={cartpole_copy}"])


def test_a_setting_that_the_runs_folder_lacks_has_its_default(cartpole_copy: Path) -> None:
    path = cartpole_copy / "config.json"
    saved = json.loads(path.read_text())
    del saved["wandb_tags"]
    path.write_text(json.dumps({**saved, "logger": "tensorboard"}))
    assert configure([f"--resume={cartpole_copy}"])[1].config.logger == ["tensorboard"]
