"""From a command line to the settings of a run."""

import json
from pathlib import Path

import pytest

from ppo.commands.train import configure, train
from ppo.config.config import Config
from ppo.errors import CheckpointError
from ppo.run import checkpoint


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


def test_a_run_makes_two_configs_and_a_resumed_one_reads_its_checkpoint_once(
    cartpole_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = []
    checkpoints = []
    make, read = Config.__post_init__, checkpoint._read
    monkeypatch.setattr(Config, "__post_init__", lambda self: (configs.append(self), make(self))[1])
    monkeypatch.setattr(checkpoint, "_read", lambda path: (checkpoints.append(path), read(path))[1])
    sizes = ["--num_envs=2", "--num_steps=8", "--num_minibatches=1", "--num_workers=0"]
    new = ["--env_name=CartPole-v1", *sizes, "--total_steps=32", "--eval_episodes=0"]
    train([*new, "--verbose=0", "--report=False", f"--run_dir={cartpole_copy.parent / 'new'}"])
    assert len(configs) == 2
    checkpoints.clear()  # those that were written, and verified
    configs.clear()
    monkeypatch.chdir(cartpole_copy.parent)
    train([f"--resume={cartpole_copy.name}", "--total_steps=5632", "--verbose=0", "--report=False"])
    assert len(configs) == 2
    read_names = [path.name for path in checkpoints]
    assert read_names.count("000000005120.safetensors") == 1


def test_a_setting_that_the_runs_folder_lacks_has_its_default(cartpole_copy: Path) -> None:
    path = cartpole_copy / "config.json"
    saved = json.loads(path.read_text())
    del saved["wandb_tags"]
    path.write_text(json.dumps({**saved, "logger": "tensorboard"}))
    assert configure([f"--resume={cartpole_copy}"])[1].config.logger == ["tensorboard"]
