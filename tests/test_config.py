"""Settings: what command lines, files and Python may say, presets, and what auto means."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ppo.checkpoint import LAST
from ppo.config import Config, flag_names
from ppo.errors import ConfigError
from ppo.flags import checked, flags_of, split
from ppo.folder import RunFolder, find_resumed
from ppo.settings import PRESETS, settle
from ppo.state import saved_flags
from tests.worlds import Constant, Film, Numbers

FLAGS = flags_of(Config)


def config_of(*line: str) -> Config:
    words, texts = split(line, FLAGS)
    assert not words
    return Config(**checked(texts, FLAGS))


@given(st.sampled_from(flag_names()), st.text())
@example("num_envs", "\N{SUPERSCRIPT TWO}")
@example("num_envs", "9" * 5000)
@example("total_steps", "1e308")
def test_any_text_for_any_flag_makes_a_config_that_is_json_or_a_config_error(name, text):
    with suppress(ConfigError):
        config = Config(**checked({name: text}, FLAGS))
        state = json.loads(json.dumps(config.to_json()))
        assert Config(**checked(state, FLAGS)) == config


@pytest.mark.parametrize("value", [{1: 5}, (1, 2), float("nan")])
def test_arguments_that_json_would_change_are_refused(value):
    with pytest.raises(ConfigError, match="env_kwargs"):
        checked({"env_kwargs": {"a": value}}, FLAGS)


def test_flags_may_be_written_with_hyphens():
    assert config_of("--env-id=A", "--clip-rewards") == config_of("--env_id=A", "--clip_rewards")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize(("file", "text"), [("a.toml", "seed = 3\r\n"), ("a.json", '{"seed": 3}')])
def test_files_of_flags_may_begin_with_a_byte_order_mark(file, text, encoding, tmp_path):
    (tmp_path / file).write_bytes(text.encode(encoding))
    assert config_of(f"--config={tmp_path / file}").seed == 3


def test_a_preset_is_the_environments_or_its_kinds_and_given_flags_count_more():
    for env, name in (("CartPole-v1", "CartPole-v1"), (Numbers, "continuous"), (Film, "images")):
        tuned = json.loads((PRESETS / f"{name}.json").read_text())
        found = settle({"env_name": env}).given.to_json()
        assert tuned.items() <= found.items()
        assert settle({"env_name": env, "num_envs": 5}).given.num_envs == 5
    assert settle({"env_name": "CartPole-v1", "preset": "none"}).given.gamma == Config.gamma
    given = {"env_name": Constant, "preset": "Acrobot-v1"}
    assert settle(given).given.batch_size
    assert settle({**given, "num_minibatches": 2}).given.batch_size is None


def test_the_folder_to_resume(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("runs/saved/checkpoints/last.safetensors", "begun/checkpoints/.tmp-x"):
        Path(name).parent.mkdir(parents=True)
        Path(name).touch()
    saved = Path("runs/saved")
    for flags, folder in (
        ({"resume": "auto", "name": "saved"}, saved),
        ({"resume": "auto", "run_dir": "begun"}, None),
        ({"resume": "saved"}, saved),
        ({"resume": "runs/saved"}, saved),
    ):
        assert find_resumed(Config(**flags)) == folder
    for wrong in ({"resume": "auto"}, {"resume": "begun"}, {"resume": "nowhere"}):
        with pytest.raises(ConfigError, match="--resume"):
            find_resumed(Config(**wrong))


def test_flags_of_another_version_have_their_defaults_or_are_left_out(tmp_path):
    state = {"config": {**Config(gamma=0.5).to_json(), "flag_of_tomorrow": 1}}
    del state["config"]["gae_lambda"]
    config = Config(**checked(saved_flags(tmp_path, state, {"seed": 3}), FLAGS))
    assert (config.gamma, config.gae_lambda, config.seed) == (0.5, Config.gae_lambda, 3)


def test_a_folder_of_something_else_or_of_a_finished_run_is_not_begun_again(tmp_path, capsys):
    """A killed run has left a lock and config.json; all else is somebody's."""
    config = config_of(f"--run_dir={tmp_path}", "--resume=auto")
    saved = ["lock", "config.json", "checkpoints"]
    (tmp_path / ".tmp-of-others").touch()
    for names in (["notes"], ["config.json"], ["lock", "config.json", "summary.json"], saved):
        for name in names:
            (tmp_path / name).touch()
        if names == saved:  # by another process, since this one has looked
            (tmp_path / "checkpoints").unlink()
            (tmp_path / "checkpoints").mkdir()
            (tmp_path / "checkpoints" / LAST).touch()
        for _ in range(2):  # a refusal leaves nothing that a second one would take for a run
            with pytest.raises(ConfigError, match="not empty"):
                RunFolder(config, None)
        assert {x.name for x in tmp_path.iterdir()} == {*names, ".tmp-of-others"}
        for name in names[:2] if names == saved else names:
            (tmp_path / name).unlink()
    shutil.rmtree(tmp_path / "checkpoints")
    for name in ("lock", "config.json", "events.out.tfevents.1"):
        (tmp_path / name).touch()
    with RunFolder(config, None) as run:
        run.note("it failed", "Traceback")
    assert capsys.readouterr().err == f"it failed (traceback: {tmp_path / 'notes.txt'})\n"
