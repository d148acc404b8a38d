"""examples/levels.py: it runs, and who draws levels by what is learned there wins more of them."""

import re
from pathlib import Path

import pytest

from examples.levels import Doors, main


def test_a_right_key_leads_to_the_next_door_and_the_last_one_to_the_reward() -> None:
    env = Doors(level=2)
    env.reset()
    keys = env.keys[:2]
    assert env.step(keys[0])[1:4] == (0.0, False, False)
    assert env.step(keys[1])[1:4] == (1.0, True, False)
    env.reset()
    assert env.step((keys[0] + 1) % 4)[1:4] == (0.0, True, False)


@pytest.mark.slow
def test_more_levels_are_won_by_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main()
    won = [int(number) for number in re.findall(r": (\d+) of 30", capsys.readouterr().out)]
    hardest, uniform, by_advantages, by_returns = won
    assert hardest < 5
    assert min(by_advantages, by_returns) > uniform + 5
