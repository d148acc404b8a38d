"""Making environments from ids, and the error message for each id that has none."""

import re
import socket
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from ppo.envs.env_factories import as_env_name
from ppo.envs.errors import EnvironmentUnavailable, WorkerError
from ppo.envs.lookup import ALIASES, canonical_id, explained_errors, find_family
from tests.running import make_env, spaces_of


def refusal(env_name):
    """The sentence that answers an environment that no run can start with."""
    with pytest.raises(EnvironmentUnavailable) as caught:
        spaces_of(env_name)
    message = str(caught.value)
    assert message.startswith(f"--env_name={env_name} ")
    return message


def test_ids_that_gymnasium_has_given_up_lead_to_their_successors():
    for old in ("LunarLander-v2", "LunarLanderContinuous-v2", "BipedalWalker-v2"):
        assert canonical_id(old) == old.replace("-v2", "-v3")
        assert old not in gymnasium.registry
        assert canonical_id(old) in gymnasium.registry
    # Frames are skipped here:
    assert canonical_id("PongDeterministic-v4") == "PongNoFrameskip-v4"
    own = "tests.environments:GridDeterministic-v0"
    for env_name in ("CartPole-v1", "module:LunarLander-v2", "", own, *ALIASES.values()):
        assert canonical_id(env_name) == env_name
    make_env(own)
    assert canonical_id("GridDeterministic-v0") == "GridDeterministic-v0"


def test_auto_means_what_the_family_of_the_latest_version_says():
    assert find_family("PongNoFrameskip-v4", {})[1:] == (
        "Atari",
        {"frame_skip": 4, "sticky_actions": 0.0},
    )
    assert make_env("ALE/Pong").spec.id == make_env("ALE/Pong-v5").spec.id == "ALE/Pong-v5"
    assert find_family("ALE/Pong-v5", {})[1:] == (
        "Atari",
        {"frame_skip": 4, "sticky_actions": 0.25},
    )
    assert find_family("ALE/Pong-v5", {"obs_type": "ram"})[2] == {"frame_skip": 1}
    assert find_family("CarRacing-v3", {})[1:] == (None, {"frame_skip": 1})


def test_module_and_id_import_the_module_first(tmp_path, monkeypatch, gymnasium_registry):
    code = "import gymnasium\ngymnasium.register('Plain-v0', 'tests.environments:Bandit')\n"
    (tmp_path / "some_environments.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert make_env("some_environments:Plain-v0").action_space == spaces.Discrete(3)
    assert "unknown" in refusal("some_environments:Absent-v0")
    sys.modules.pop("some_environments")


@pytest.mark.parametrize(
    ("env_name", "said"),
    [
        ("LunarLnder-v3", "unknown: did you mean LunarLander-v3"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v9", "CartPole-v1"),
        ("ALE/Pnog-v5", "Pong"),
        ("Zzzzzz-v0", "gymnasium.pprint_registry()"),
        ("no_such_module:CartPole-v1", "'no_such_module'"),
        ("", ""),
        (":", ""),
        ("CartPole-v1:", ""),
        (".relative:CartPole-v1", ""),
    ],
)
def test_an_id_that_cannot_be_made_is_answered_with_a_way(env_name, said):
    assert said in refusal(env_name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Arm", "cannot be made: .*port.*: --env_kwargs gives arguments"),
        ("Leg", "is unknown: my_arm.py has Arm, maze, Legs_and_arms"),
        ("Arms", "is unknown: did you mean Arm?"),
        ("maze", "my_arm.py:maze cannot be made: .*Labyrinth"),
    ],
)
def test_a_file_is_answered_with_what_it_has_and_needs(name, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    code = "import gymnasium\nclass Arm(gymnasium.Env):\n    def __init__(self, port): 0\n"
    code += "def maze(): return gymnasium.make('Labyrinth-v0')\n"
    (tmp_path / "my_arm.py").write_text(f"{code}def Legs_and_arms(): 0\n")
    assert re.search(said, refusal(f"my_arm.py:{name}"))
    sys.modules.pop("my_arm")


@pytest.mark.parametrize(
    ("body", "env_kwargs", "said"),
    [
        ("pass", {"render_mode": "rgb_array"}, "it must take render_mode, and have render"),
        ("def reset(self): return 0, {}", {}, r"write def reset\(self, \*, seed=None, options"),
    ],
)
def test_an_incomplete_class_is_answered_with_what_to_write(body, env_kwargs, said):
    space = gymnasium.spaces.Discrete(2)
    members = {"observation_space": space, "action_space": space}
    exec(body, members)
    incomplete = type("Incomplete", (gymnasium.Env,), members)
    with pytest.raises(EnvironmentUnavailable, match=said):
        spaces_of(as_env_name(incomplete), env_kwargs=[env_kwargs])


def test_a_port_that_two_simulators_share_is_answered_with_one_for_each():
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        pytest.raises(WorkerError, match=r"made with no --env_kwargs, which must give it a port"),
        explained_errors("arm.py:Arm"),
    ):
        socket.create_server(first.getsockname())


def test_a_missing_package_is_named_with_how_to_install_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)  # from now on, to import it fails
    assert "gymnasium[mujoco]" in refusal("Ant-v5")


class Vast(gymnasium.Env):
    """Has many numbers, and is never reset."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(2)

    def __init__(self, part: str, kind: str) -> None:
        vast = {
            "box": lambda: spaces.Box(-1, 1, (2**12, 2**12 + 1), np.int8),
            "choice": lambda: spaces.Discrete(10**8),
            "bits": lambda: spaces.MultiBinary([10**4, 10**4]),
            "dict": lambda: spaces.Dict(a=spaces.Discrete(2**24), b=spaces.MultiBinary(1)),
        }
        setattr(self, f"{part}_space", vast[kind]())


@pytest.mark.parametrize("part", ["observation", "action"])
@pytest.mark.parametrize("kind", ["box", "choice", "bits", "dict"])
def test_spaces_of_too_many_numbers_are_refused_before_anything_is_taken(part, kind):
    about = {"part": part, "kind": kind}
    words = rf"its {part}s of 1\d+,[\d,]+ numbers are too large, at most 16,777,216 are allowed"
    with pytest.raises(EnvironmentUnavailable, match=words):
        spaces_of("tests.envs.test_make:Vast", env_kwargs=about)


def test_observations_are_counted_with_those_that_are_stacked():
    with pytest.raises(EnvironmentUnavailable, match="observations of 20,000,000 numbers are too"):
        spaces_of("CartPole-v1", frame_stack=5_000_000)


def test_a_missing_rom_is_named_with_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    message = refusal("PongNoFrameskip-v4")
    assert "pong.bin" in message
    assert "ALE_ROMS_DIR" in message


def test_without_ale_py_its_games_are_answered_with_how_to_install_it(monkeypatch):
    for name, spec in [*gymnasium.registry.items()]:
        if "ale_py" in str(spec.entry_point):
            monkeypatch.delitem(gymnasium.registry, name)
    monkeypatch.setitem(sys.modules, "ale_py", None)  # from now on, to import it fails
    assert "pip install ale" in refusal("PongNoFrameskip-v4")


def test_a_game_with_a_time_limit_of_its_own_keeps_it(monkeypatch):
    spec = EnvSpec("Short-v0", "ale_py.env:AtariEnv", kwargs={"game": "pong"}, max_episode_steps=3)
    monkeypatch.setitem(gymnasium.registry, "Short-v0", spec)
    assert find_family("Short-v0", {})[1] is None
    env = make_env("Short-v0")
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
