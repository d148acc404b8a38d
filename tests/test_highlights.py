"""The episodes of a run that are noted to be replayed."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ppo import load_policy
from ppo.callbacks.highlights import EpisodeHighlights
from ppo.envs.episodes import PlayedEpisode
from ppo.run.reader import EPISODES
from ppo.tools.render import find_episode, replay


def episodes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / EPISODES).read_text().splitlines()]


def test_the_best_median_and_worst_episodes_are_saved_and_replayed_to_the_same_return(
    cartpole_copy: Path,
) -> None:
    noted = episodes(cartpole_copy)
    assert [(episode["kind"], episode["step"]) for episode in noted] == [
        (kind, step) for step in (1280, 2560, 3840, 5120) for kind in ("best", "median", "worst")
    ]
    assert len((cartpole_copy / EPISODES).read_bytes()) < 10_000
    policy = load_policy(cartpole_copy / "checkpoints" / "last.safetensors")
    for episode in noted:
        assert episode["episode_return"] == episode["episode_length"]
        kept = find_episode(cartpole_copy, episode["kind"])
        assert len(kept["actions"]) == kept["episode_length"]
        replay(policy, kept)
    best, worst = (
        find_episode(cartpole_copy, kind)["episode_return"] for kind in ("best", "worst")
    )
    assert best == max(episode["episode_return"] for episode in noted)
    assert worst == min(episode["episode_return"] for episode in noted)


def episode(episode_return: float, num_steps: int) -> PlayedEpisode:
    return PlayedEpisode(episode_return, num_steps, 0, 0, np.zeros((num_steps, 1)))


def highlights(max_steps: int) -> EpisodeHighlights:
    return EpisodeHighlights(max_steps)


def add(played: EpisodeHighlights, episodes: list[PlayedEpisode]) -> None:
    """Let an iteration end with these episodes."""
    played.on_iteration(SimpleNamespace(rollout=SimpleNamespace(played_episodes=episodes)))


def test_of_episodes_with_very_many_steps_only_those_worth_seeing_are_kept() -> None:
    lengths, played = (3, 1, 4, 5, 9, 2, 6), highlights(30)
    add(played, [episode(float(x), x) for x in lengths])
    assert [one.episode_return for one in played.episodes] == [*lengths]
    add(played, [episode(7.0, 1)])
    assert [one.episode_return for one in played.episodes] == [9, 5, 1]
    two = highlights(3)
    add(two, [episode(float(x), x) for x in (3, 4)])
    assert len(two.episodes) == 2  # neither of which is kept twice


def test_the_best_and_the_worst_episode_outlast_all_between_them() -> None:
    played = highlights(150)
    for x in (5, 9, 1, 6, 4, 5, 7):
        add(played, [episode(float(x), 100)])
        assert len(played.episodes) <= 3
    noted: list[str] = []
    run = SimpleNamespace(step=700, folder=SimpleNamespace(episodes=noted))
    played.on_checkpoint(run)
    played.on_checkpoint(run)  # nothing is noted of no episodes
    lines = [json.loads(line) for line in noted]
    assert [(line["kind"], line["episode_return"]) for line in lines] == [
        ("best", 9),
        ("median", 7),
        ("worst", 1),
    ]


def test_a_line_that_was_torn_is_passed_over(cartpole_copy: Path) -> None:
    with (cartpole_copy / EPISODES).open("a") as file:
        file.write('{"kind": "be')
    assert find_episode(cartpole_copy, "best")["kind"] == "best"
