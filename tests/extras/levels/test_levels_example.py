"""examples/levels.py: its doors, and that levels are learned which the hardest one never shows."""

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
def test_levels_are_won_by_who_begins_with_easy_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main()
    won = [int(number) for number in re.findall(r": (\d+) of 30", capsys.readouterr().out)]
    hardest, *others = won
    assert hardest < 5
    assert len(others) == 3
    assert min(others) > 5
