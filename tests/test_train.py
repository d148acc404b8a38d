"""From a command line to the settings of a run."""

import json
from pathlib import Path

import pytest

from ppo.commands.train import configure, resume_if_begun
from ppo.config.config import Config, load_preset
from ppo.errors import CheckpointError, ConfigError


def test_flags_go_before_presets() -> None:
    given, config, notes = configure(["--env=CartPole-v1", "--num-epochs=3"])
    assert given == {"env_name": "CartPole-v1", "num_epochs": "3"}
    tuned = load_preset("CartPole-v1", "", str)
    assert config == Config(**{**tuned, "env_name": "CartPole-v1", "num_epochs": 3})
    (note,) = notes
    assert note.startswith("tuned preset (turned off by --preset=none): ")
    assert "num_epochs" not in note
    _, config, notes = configure(["--env=CartPole-v1", "--preset=none"])
    assert (config, notes) == (Config(env_name="CartPole-v1", preset="none"), [])


def test_an_old_id_is_replaced_and_said() -> None:
    _, config, notes = configure(["--env_name=LunarLander-v2", "--preset=none"])
    assert config.env_name == "LunarLander-v3"
    assert notes == ["LunarLander-v2 is now LunarLander-v3"]


def test_a_familys_preset_follows_from_the_environment_and_its_arguments() -> None:
    _, config, _ = configure(["--env_name=ALE/Pong-v5"])
    assert config.end_on_life_loss is True
    _, config, notes = configure(["--env_name=ALE/Pong-v5", '--env_kwargs={"obs_type": "ram"}'])
    assert (config.end_on_life_loss, config.entropy_coef) == (False, 0.01)
    assert "learning_rate=linear:0.001" in notes[0]  # of vectors with discrete actions


def test_a_resumed_run_keeps_its_settings_unless_flags_say_otherwise(cartpole_copy: Path) -> None:
    _, before, _ = configure([f"--resume={cartpole_copy}"])
    assert (before.env_name, before.num_steps, before.learning_rate) == ("CartPole-v1", 64, 1e-5)
    assert (before.resume, before.run_dir) == (str(cartpole_copy), None)
    given, config, notes = configure([f"--resume={cartpole_copy}", "--total_steps=9999"])
    assert config == Config(**{**vars(before), "total_steps": 9999})
    assert given["run_dir"] == "none"
    assert notes == []
    (cartpole_copy / "checkpoints" / "last.safetensors").unlink()
    for path in (cartpole_copy / "checkpoints").iterdir():
        path.write_bytes(b"damaged")
    with pytest.raises(CheckpointError):
        configure([f"--resume={cartpole_copy}"])


def test_a_run_of_an_older_version_keeps_the_flags_that_it_had(cartpole_copy: Path) -> None:
    path = cartpole_copy / "config.json"
    saved = json.loads(path.read_text())
    del saved["wandb_tags"]
    path.write_text(json.dumps({**saved, "logger": "tensorboard"}))
    assert configure([f"--resume={cartpole_copy}"])[1].logger == "tensorboard"


def test_a_launch_resumes_its_own_run_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "abc")
    given = {"name": "a/b", "seed": "1"}
    assert resume_if_begun(given) == {**given, "run_dir": "runs/a-b-abc"}
    assert resume_if_begun({"run_dir": "none"}) == resume_if_begun({})
    assert resume_if_begun({})["run_dir"] == f"runs/{Config.env_name}-abc"
    for folder, launch in (("ours", "abc"), ("another", "def"), ("alone", None)):
        Path(folder).mkdir()
        Path(folder, "config.json").write_text(json.dumps({"launch": launch}))
    assert resume_if_begun({"run_dir": "ours"}) == {"run_dir": "ours", "resume": "auto"}
    assert resume_if_begun({"run_dir": "another"}) == {"run_dir": "another"}
    assert resume_if_begun({"run_dir": "alone"}) == {"run_dir": "alone"}
    assert resume_if_begun({"resume": "another"}) == {"resume": "another"}
    with pytest.raises(ConfigError, match="--seeds=3 is for one process"):
        resume_if_begun({"seeds": "3"})
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with pytest.raises(ConfigError, match="--rdzv_id=none: give the run a name"):
        resume_if_begun({"run_dir": "ours"})
