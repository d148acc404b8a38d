"""What several commands share, and checks of files that are to be written."""

from pathlib import Path

from ppo.commands.policy_flags import folder_of, interval_text


def test_a_checkpoint_belongs_to_the_folder_with_its_config(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "last.safetensors"
    assert folder_of(checkpoint) == tmp_path / "checkpoints"
    (tmp_path / "config.json").touch()
    assert folder_of(checkpoint) == tmp_path


def test_an_interval_is_said_if_there_is_one() -> None:
    assert interval_text(None) == ""
    assert interval_text((1.26, 3)) == " (95 % interval 1.3 to 3.0)"
