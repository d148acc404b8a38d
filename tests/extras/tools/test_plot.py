"""The command plot."""

from pathlib import Path

import imageio.v3

from tests.running import Call


def test_runs_are_plotted(cartpole_run: Path, tmp_path: Path, call: Call) -> None:
    for name in ("one.png", "one.svg"):
        assert call("plot", str(cartpole_run), f"--output={tmp_path / name}") == (
            0,
            f"picture: {tmp_path / name}\n",
            "",
        )
    assert imageio.v3.imread(tmp_path / "one.png").std() > 10
    assert b"approx_kl" not in (tmp_path / "one.svg").read_bytes()
