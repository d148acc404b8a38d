"""The policies in policies/: each is what its card says, and is refused where it is changed."""

import hashlib
import importlib.util
import json
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import harness, policies
from ppo import load_policy
from ppo.config.config import Config
from ppo.config.flags import parse_flags
from ppo.errors import CheckpointError
from ppo.run import checkpoint
from tests.running import ROOT, run_main

FOLDER = ROOT / "policies"
CARDS = policies.read_cards()
per_policy = pytest.mark.parametrize("name", CARDS)


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.safetensors"


def test_every_policy_has_a_card_and_all_are_small() -> None:
    files = sorted(FOLDER.glob("*.safetensors"))
    assert [path.stem for path in files] == sorted(CARDS)
    assert CARDS.keys() <= policies.ENVIRONMENTS.keys()
    assert sum(path.stat().st_size for path in files) < 8_000_000


@per_policy
def test_a_policy_is_what_its_card_says(name: str) -> None:
    card, content = CARDS[name], path_of(name).read_bytes()
    assert card["bytes"] == len(content)
    assert card["sha256"] == hashlib.sha256(content).hexdigest()
    assert re.fullmatch("[0-9a-f]{40}", card["commit"])
    state = checkpoint.load(path_of(name))
    rooms = {entry.partition(".")[0] for entry in state}
    assert rooms == {"config", "env_attributes", "model", "normalize_observation", "spaces"}
    (python, main, *flags) = shlex.split(card["command"])
    assert (python, main) == ("python", "main.py")
    given = parse_flags(flags, Config)
    command, config = vars(Config(**given)), state["config"]
    assert (command["env_name"], command["seed"]) == (name, card["seed"])
    assert all(config[flag] == command[flag] for flag in given if flag != "stop_when")
    rollout = config["num_envs"] * config["num_steps"]
    assert card["steps"] % rollout == 0
    rest = config["total_steps"] - card["steps"]
    assert rest > 0 if "stop_when" in given else rest in range(rollout)
    page = (FOLDER / "README.md").read_text()
    assert f"| {card['mean']:,.1f} +/- {card['std']:.1f} | " in page
    assert card["sha256"][:16] in page


def test_a_policy_is_refused_where_a_byte_is_changed(tmp_path: Path) -> None:
    content, random = path_of("CartPole-v1").read_bytes(), np.random.default_rng(0)
    header = 8 + int.from_bytes(content[:8], "little")
    settings = content.index(b'\\"config\\"')
    path = tmp_path / "changed.safetensors"
    for place in (0, *random.integers(8, header, 5), settings, header, len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match=r"changed\.safetensors: .*; give another$"):
            checkpoint.load(path)


def evaluated(name: str, folder: Path, *flags: str) -> harness.Result:
    """What `ppo evaluate` writes of games on no screen."""
    output = folder / "evaluation.json"
    done = run_main(
        *("evaluate", str(path_of(name)), f"--output={output}", *flags),
        env={**os.environ, "SDL_VIDEODRIVER": "dummy"},
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(output.read_text())
    return found


@pytest.mark.slow
def test_a_policy_is_shown_in_a_window(tmp_path: Path) -> None:
    found = evaluated("CartPole-v1", tmp_path, "--episodes=2", "--max_steps=10", "--render=human")
    assert found["lengths"] == [10, 10]


def test_a_policy_plays_as_its_card_says() -> None:
    found = load_policy(path_of("CartPole-v1")).evaluate(1, seed=policies.SEED_OF_GAMES)
    card = CARDS["CartPole-v1"]
    assert abs(found.mean - card["mean"]) <= 3 * card["std"]


@pytest.mark.slow
@per_policy
def test_a_policy_comes_to_its_return_in_100_games(name: str, tmp_path: Path) -> None:
    if name.endswith("-v5") and not importlib.util.find_spec("mujoco"):
        pytest.skip("mujoco is not installed")
    card = CARDS[name]
    seed = f"--seed={policies.SEED_OF_GAMES}"
    found = evaluated(name, tmp_path, f"--episodes={card['episodes']}", seed)
    assert abs(found["mean"] - card["mean"]) <= card["std"]


@pytest.mark.slow
def test_policies_are_made_with_their_cards_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = "--preset=none --num_envs=2 --num_steps=32 --total_steps=256"
    monkeypatch.setattr(policies, "ENVIRONMENTS", {"CartPole-v1": tiny})
    monkeypatch.setattr(policies, "FOLDER", tmp_path)
    monkeypatch.setattr(policies, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(sys, "argv", ["policies", "--seeds=1", "--episodes=2"])
    policies.main()
    card = policies.read_cards()["CartPole-v1"]
    assert card["command"] == f"python main.py --env_name=CartPole-v1 {tiny} --seed=1"
    assert card["steps"] == 256
    found = load_policy(tmp_path / "CartPole-v1.safetensors").evaluate(2, seed=1000)
    assert (found.mean, found.std) == (card["mean"], card["std"])
    monkeypatch.setattr(policies, "make_policy", None)  # which is not called again
    policies.main()
    assert "CartPole-v1 is there already" in capsys.readouterr().out
