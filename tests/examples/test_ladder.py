"""The ladder of examples/: ratings against their definition, and the games of two policies."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from examples import ladder
from examples.turn_based import Game
from ppo import Config, load_policy, train
from ppo.envs.env_factories import as_env_name
from tests.running import TINY


def test_ratings_are_those_by_which_points_were_won() -> None:
    ratings = np.array([-300.0, -20, 0, 110, 210])
    shares = 1 / (1 + 10 ** ((ratings - ratings[:, None]) / 400))
    np.fill_diagonal(shares, 0)
    assert ladder.elo_ratings(1e6 * shares) == pytest.approx(ratings, abs=0.1)
    won_all, lost_all = ladder.elo_ratings(np.array([[0.0, 20], [0, 0]]))
    assert won_all == -lost_all > 200


def test_saved_policies_play_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = {**TINY, "env_name": as_env_name(Game), "total_steps": 16}
    policy = load_policy(train(Config(**flags, run_dir=str(tmp_path / "run"))).checkpoint, Game)
    policy.save(tmp_path / "000010.safetensors")
    monkeypatch.setattr(sys, "argv", ["ladder", str(tmp_path), "--games=4"])
    with pytest.raises(SystemExit, match="2"):
        ladder.main()
    assert "fewer than two policies" in capsys.readouterr().err
    policy.save(tmp_path / "000020.safetensors")
    ladder.main()
    with (tmp_path / "ladder.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["version"], second["version"]) == ("10", "20")
    assert float(first["against 20"]) + float(second["against 10"]) == 1
    assert float(first["Elo"]) == -float(second["Elo"])
    assert len(capsys.readouterr().out.splitlines()) == 3
