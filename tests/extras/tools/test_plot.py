"""The command plot."""

import re
from pathlib import Path

import imageio.v3
import pytest

from tests.running import Call


def test_runs_are_plotted(cartpole_run: Path, tmp_path: Path, call: Call) -> None:
    for name in ("one.png", "one.svg", "one.pdf"):
        assert call("plot", str(cartpole_run), f"--output={tmp_path / name}") == (
            0,
            f"picture: {tmp_path / name}\n",
            "",
        )
    assert imageio.v3.imread(tmp_path / "one.png").std() > 10
    assert b"approx_kl" not in (tmp_path / "one.svg").read_bytes()
    content = (tmp_path / "one.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert b"/Type3" not in content  # which publishers refuse


@pytest.mark.parametrize("name", ["entropy", "episode_return_mean"])
def test_one_metric_is_plotted_in_one_panel(
    name: str, cartpole_run: Path, tmp_path: Path, call: Call
) -> None:
    path = tmp_path / "one.svg"
    assert call("plot", str(cartpole_run), f"--metric={name}", f"--output={path}")[0] == 0
    assert len(re.findall('id="axes_', path.read_text())) == 1


def test_a_metric_that_no_run_has_is_refused_with_those_there_are(
    cartpole_run: Path, tmp_path: Path, call: Call
) -> None:
    output = f"--output={tmp_path / 'one.pdf'}"
    code, _, err = call("plot", str(cartpole_run), "--metric=entropi", output)
    assert (code, err.count("\n")) == (2, 1)
    assert "--metric=entropi: no run has values of it: did you mean entropy?" in err
    assert "give one of iteration" in call("plot", str(cartpole_run), "--metric=xyz", output)[2]
    assert not (tmp_path / "one.pdf").exists()
