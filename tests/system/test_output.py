"""What worker processes print on a terminal that shows a progress bar."""

import io
import shlex
import subprocess
from pathlib import Path

import pytest

from ppo.system.output import ERASE_LINE, LineWriter
from tests.running import ROOT, command, metrics, on_terminal


def test_lines_are_printed_whole() -> None:
    stream = io.StringIO()
    lines = LineWriter(stream)
    print("a", 1, file=lines)
    print("b", end="", file=lines)
    assert stream.getvalue() == f"{ERASE_LINE}a 1\n"
    print("c\nd", file=lines)
    assert stream.getvalue() == f"{ERASE_LINE}a 1\n{ERASE_LINE}bc\n{ERASE_LINE}d\n"


def test_programs_that_an_environment_starts_print_to_the_terminal(tmp_path: Path) -> None:
    with (tmp_path / "terminal").open("w") as stream:
        lines = LineWriter(stream)
        subprocess.run(["echo", "a"], stdout=lines, check=True)
        lines.buffer.write(b"b")
        assert not lines.isatty()  # so that no progress bar of its own is drawn
    assert (tmp_path / "terminal").read_text() == "a\nb"


def test_a_terminal_that_has_gone_is_no_error() -> None:
    class Gone(io.StringIO):
        def flush(self) -> None:
            raise OSError

    print("a", file=LineWriter(Gone()))


TALKATIVE = """
import gymnasium

class Talkative(gymnasium.Wrapper):
    def reset(self, **options):
        print("a new", "episode")
        return self.env.reset(**options)

def make():
    return Talkative(gymnasium.make("CartPole-v1"))
"""


@pytest.mark.slow
def test_what_environments_print_stands_above_the_bar(tmp_path: Path) -> None:
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    text = on_terminal(
        f"--env_name={tmp_path}/talkative.py:make",
        "--preset=none",
        "--num_iterations=40",
        "--num_workers=2",
        "--eval_episodes=0",
        "--report=False",
        f"--run_dir={tmp_path / 'run'}",
    )
    assert "━" in text
    said = [line for line in text.split("\r\n") if "a new episode" in line]
    assert len(said) > 20
    assert all(line.endswith(f"{ERASE_LINE}a new episode") for line in said)


@pytest.mark.slow
def test_a_run_trains_with_closed_streams(tmp_path: Path) -> None:
    line = shlex.join(
        command(
            "--env_name=CartPole-v1",
            "--preset=none",
            "--num_iterations=2",
            "--num_workers=2",
            "--eval_episodes=0",
            "--report=False",
            f"--run_dir={tmp_path / 'run'}",
        )
    )
    assert subprocess.run(["bash", "-c", f"{line} >&- 2>&-"], cwd=ROOT).returncode == 0
    assert len(metrics(tmp_path / "run")) == 2
