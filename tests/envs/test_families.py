"""Families of environments: the flags they own, and how another one is registered."""

from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from ppo.config.learning_flags import EnvironmentFlags
from ppo.envs import lookup
from ppo.envs.families import FAMILIES
from ppo.envs.lookup import find_family
from tests.running import make_env


class Toy:
    """A family of one environment, whose actions are repeated as often as --frame_skip says."""

    name = "Toy"
    module = "tests.environments"
    fields = ("noop_max",)

    def canonical_id(self, env_name: str) -> str:
        return env_name.replace("OldBandit", "Bandit")

    def matches(self, spec: EnvSpec) -> bool:
        return spec.id == "Bandit-v0"

    def auto_values(self, spec: EnvSpec) -> dict[str, Any]:
        return {"frame_skip": 7}

    def make(self, spec: EnvSpec, config: Any) -> gymnasium.Env:
        env = gymnasium.make(spec)
        env.frame_skip = config.frame_skip
        return env


def test_every_field_of_a_family_or_of_images_is_a_flag_of_environments() -> None:
    owned = ["screen_size", *(field for family in FAMILIES for field in family.fields)]
    assert len(owned) == len(set(owned))
    assert set(owned) < set(EnvironmentFlags.names())


def test_a_registered_family_recognises_makes_and_renames_its_environments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup, "FAMILIES", (*FAMILIES, Toy()))
    assert lookup.canonical_id("OldBandit-v0") == "Bandit-v0"
    assert find_family("Bandit-v0", {}) == ("Bandit-v0", "Toy", {"frame_skip": 7})
    assert make_env("Bandit-v0", frame_skip=3).get_wrapper_attr("frame_skip") == 3
    assert find_family("CartPole-v1", {}) == ("CartPole-v1", None, {"frame_skip": 1})
