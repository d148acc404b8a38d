"""Making environments from ids, and the error message for each id that has none."""

import re
import socket
import sys
import textwrap

import gymnasium
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from ppo.envs.errors import EnvironmentUnavailable, WorkerError
from ppo.envs.lookup import ALIASES, canonical_id, explained_errors, find_family
from tests.running import make_env, spaces_of

MODULE = """
    import gymnasium
    import numpy as np
    from gymnasium import spaces

    UNEVEN = spaces.Box(np.zeros(30, np.float32), np.arange(30, dtype=np.float32))
    BOX = spaces.Box(-1, 1, (2, 3))

    class Env(gymnasium.Env):
        def __init__(self, observation_space, action_space):
            self.observation_space, self.action_space = observation_space, action_space

    SPACES = {
        "Plain": (BOX, BOX),
        "Sequence": (spaces.Sequence(BOX), BOX),
        "Graph": (spaces.Graph(BOX, None), BOX),
        "Words": (BOX, spaces.Text(9)),
        "Points": (BOX, spaces.Sequence(UNEVEN)),
        "Pair": (BOX, spaces.Tuple([spaces.MultiDiscrete(range(1, 50)), spaces.Text(9)])),
        "Parts": (BOX, spaces.Dict({"move": BOX, "say": spaces.Text(9)})),
    }
    for name, pair in SPACES.items():
        kwargs = dict(zip(("observation_space", "action_space"), pair))
        gymnasium.register(f"{name}-v0", Env, kwargs=kwargs)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that registers environments when it is imported."""
    (tmp_path / "some_environments.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    before = dict(gymnasium.registry)
    yield "some_environments"
    sys.modules.pop("some_environments", None)
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def refusal(env_name):
    """The sentence that answers an environment that no run can start with."""
    with pytest.raises(EnvironmentUnavailable) as caught:
        spaces_of(env_name)
    message = str(caught.value)
    assert message.startswith(f"--env_name={env_name} ")
    return message


@pytest.mark.parametrize("old", ["LunarLander-v2", "LunarLanderContinuous-v2", "BipedalWalker-v2"])
def test_ids_that_gymnasium_has_given_up_lead_to_their_successors(old):
    assert canonical_id(old) == old.replace("-v2", "-v3")
    assert old not in gymnasium.registry
    assert canonical_id(old) in gymnasium.registry


def test_other_ids_are_left_alone():
    for env_name in ("CartPole-v1", "module:LunarLander-v2", "", *ALIASES.values()):
        assert canonical_id(env_name) == env_name


def test_a_known_id_makes_that_environment():
    env = make_env("CartPole-v1")
    assert env.spec.id == "CartPole-v1"
    shown = env.observation_space
    expected = (shown, spaces.Discrete(2), False, (), 475, "single", 1, False, shown)
    assert spaces_of("CartPole-v1") == expected


def test_module_and_id_import_the_module_first(module):
    assert f"{module}:Plain-v0" not in gymnasium.registry
    env = make_env(f"{module}:Plain-v0")
    assert [env.observation_space, env.action_space] == 2 * [spaces.Box(-1, 1, (2, 3))]


@pytest.mark.parametrize(
    ("env_name", "near"),
    [
        ("LunarLnder-v3", "LunarLander-v3"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v9", "CartPole-v1"),
    ],
)
def test_an_unknown_id_is_answered_with_near_ones(env_name, near):
    assert near in refusal(env_name)
    assert "unknown" in refusal(env_name)


def test_an_id_like_no_other_is_answered_with_how_to_list_them():
    assert "gymnasium.pprint_registry()" in refusal("Zzzzzz-v0")


@pytest.mark.parametrize(
    "env_name", ["", ":", "a b", "no/such/id", "CartPole-v1:", ".relative:CartPole-v1", "a..b:C-v0"]
)
def test_a_malformed_id_is_refused(env_name):
    refusal(env_name)


def test_a_module_that_is_missing_is_named():
    assert "'no_such_module'" in refusal("no_such_module:CartPole-v1")


def test_an_id_that_its_module_does_not_register_is_unknown(module):
    assert "unknown" in refusal(f"{module}:Absent-v0")


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


def test_a_port_that_two_simulators_share_is_answered_with_one_for_each():
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        pytest.raises(WorkerError, match=r"--env_kwargs gives each a port"),
        explained_errors("arm.py:Arm"),
    ):
        socket.create_server(first.getsockname())


def test_a_missing_package_is_named_with_how_to_install_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)  # from now on, to import it fails
    assert "gymnasium[mujoco]" in refusal("Ant-v5")


@pytest.mark.parametrize("name", ["Sequence", "Graph"])
def test_observations_without_a_fixed_size_are_named(module, name):
    assert f"observes {name}(" in refusal(f"{module}:{name}-v0")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Words", "Text"), ("Points", "Sequence"), ("Pair", "Tuple"), ("Parts", "Dict")],
)
def test_actions_of_kinds_that_no_policy_takes_are_named(module, name, kind):
    assert f"acts in {kind}(" in refusal(f"{module}:{name}-v0")


def test_a_missing_rom_is_named_with_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    message = refusal("PongNoFrameskip-v4")
    assert "pong.bin" in message
    assert "ALE_ROMS_DIR" in message


@pytest.mark.parametrize("env_name", ["PongNoFrameskip-v4", "ALE/Pong-v5"])
def test_without_ale_py_its_games_are_answered_with_how_to_install_it(env_name, monkeypatch):
    for name in [
        name for name, spec in gymnasium.registry.items() if "ale_py" in str(spec.entry_point)
    ]:
        monkeypatch.delitem(gymnasium.registry, name)
    monkeypatch.setitem(sys.modules, "ale_py", None)  # from now on, to import it fails
    assert "pip install ale" in refusal(env_name)


@pytest.mark.parametrize("env_name", ["PongNoFrameskip-v9", "ALE/Pnog-v5", "Pong-v44"])
def test_a_wrong_id_of_a_game_is_answered_with_near_ones(env_name):
    assert "did you mean" in refusal(env_name)
    assert "Pong" in refusal(env_name)


def test_deterministic_ids_are_the_same_game_since_frames_are_skipped_here():
    assert canonical_id("PongDeterministic-v4") == "PongNoFrameskip-v4"
    assert canonical_id("PongDeterministic-v0") == "PongNoFrameskip-v0"


@pytest.mark.parametrize("env_name", ["PongNoFrameskip-v4", "Pong-v4", "ALE/Pong-v5"])
def test_atari_games_are_recognised(env_name):
    assert find_family(env_name, {})[1] == "Atari"
    assert find_family("CarRacing-v3", {})[1] is find_family("CartPole-v1", {})[1] is None


def test_an_id_of_your_own_that_is_called_deterministic_is_left_alone():
    assert (
        canonical_id("tests.environments:GridDeterministic-v0")
        == "tests.environments:GridDeterministic-v0"
    )
    make_env("tests.environments:GridDeterministic-v0")
    assert canonical_id("GridDeterministic-v0") == "GridDeterministic-v0"


@pytest.mark.parametrize(
    ("short", "latest"), [("CartPole", "CartPole-v1"), ("ALE/Pong", "ALE/Pong-v5")]
)
def test_an_id_without_a_version_is_the_latest(short, latest):
    assert make_env(short).spec.id == latest


def test_a_game_with_a_time_limit_of_its_own_keeps_it(monkeypatch):
    spec = EnvSpec("Short-v0", "ale_py.env:AtariEnv", kwargs={"game": "pong"}, max_episode_steps=3)
    monkeypatch.setitem(gymnasium.registry, "Short-v0", spec)
    assert find_family("Short-v0", {})[1] is None
    env = make_env("Short-v0")
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
