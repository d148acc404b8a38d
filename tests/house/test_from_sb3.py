"""docs/from-sb3.md: what its right column names exists, and its code runs."""

import re
import shlex
import sys
from functools import partial
from pathlib import Path

import pytest

import ppo
from ppo.callbacks.base import Callback, Run
from ppo.commands.evaluate import Evaluate
from ppo.config.config import Config
from ppo.config.flags import parse_flags
from ppo.extras.tools.check import Check
from ppo.extras.tools.export import Export
from ppo.extras.tools.plots import Plot
from ppo.extras.tools.report import Report
from ppo.extras.tools.tune.command import Tune
from ppo.policy.policy import Policy
from tests.running import ROOT, Call

TEXT = (ROOT / "docs" / "from-sb3.md").read_text()
COMMANDS = {
    "train": Config,
    "tune": Tune,
    "check": Check,
    "evaluate": Evaluate,
    "export": Export,
    "plot": Plot,
    "report": Report,
}
OBJECTS = {"run": Run, "policy": Policy}
TOPICS = """
    VecNormalize Monitor info_keywords make_vec_env EvalCallback CheckpointCallback policy_kwargs
    BaseFeaturesExtractor MaskablePPO RecurrentPPO VecFrameStack rl_zoo3.train SubprocVecEnv
    BaseCallback PPO.load --optimize-hyperparameters
"""
BRIEFLY = {"report": False, "num_workers": 0, "eval_episodes": 2, "verbose": 0}


def right_column() -> list[str]:
    """Return the pieces of code in the right column of all tables."""
    rows = re.findall(r"^\|(.+)\|(.+)\|$", TEXT, re.MULTILINE)
    return [code for _, right in rows for code in re.findall(r"`([^`]+)`", right)]


def test_all_topics_are_in_the_left_column() -> None:
    left = " ".join(row for row, _ in re.findall(r"^\|(.+)\|(.+)\|$", TEXT, re.MULTILINE))
    assert not [topic for topic in TOPICS.split() if topic not in left]


def test_flags_and_commands_take_what_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yml").write_text("num_envs: 16\n")
    tried = 0
    for code in right_column():
        words = shlex.split(code)
        if code.startswith("ppo "):
            command, *words = words[1:]
            kind = COMMANDS[command]
            if command in ("train", "tune", "check") and not words[0].startswith("-"):
                words[0] = f"--env_name={words[0]}"
        elif code.startswith("--") and "=" in code:
            kind = Tune
        else:
            continue
        kind(**parse_flags(words, kind))
        tried += 1
    assert tried > 60


def test_methods_and_attributes_exist() -> None:
    tried = 0
    for code in right_column():
        for name, member in re.findall(r"\b(run|policy)\.(\w+)", code):
            kind = OBJECTS[name]
            assert hasattr(kind, member) or member in kind.__dataclass_fields__, code
            tried += 1
        for member in re.findall(r"^(on_\w+|\w*state_dict)", code):
            assert hasattr(Callback, member), code
            tried += 1
    assert tried > 15


@pytest.mark.slow
def test_its_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    """Blocks of Python that begin with the name of a file are that file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("my_env", "my_model"):  # of other tests
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(ppo, "train", partial(ppo.train, **BRIEFLY), raising=False)
    ran = 0
    for language, code in re.findall(r"```(python|bash)\n(.*?)```", TEXT, re.DOTALL):
        file = re.match(r"# (\w+\.py)\n", code)
        if file:
            Path(file[1]).write_text(code)
        elif language == "python":
            found: dict[str, object] = {}
            exec(code, found)
            ran += 1
        else:
            flags = [f"--{name}={value}" for name, value in BRIEFLY.items()]
            words = shlex.split(code.removeprefix("ppo "))
            assert call(*words, *flags, "--num_iterations=2") == (0, "", "")
            ran += 1
    assert ran == 5
