"""What train and load_policy are given from Python: registered ids, and keyword arguments."""

import os
import subprocess
import sys
import textwrap
from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import WrapperSpec

from ppo import Config, load_policy, train
from ppo.envs.errors import EnvironmentUnavailable
from ppo.errors import ConfigError
from ppo.guard import guard
from tests.running import ROOT, TINY, Call
from tests.shops import Double, Shop, nested

VALUES = {
    name: value
    for name, value in {**TINY, "total_steps": 16, "eval_episodes": 1}.items()
    if name != "env_name"
}


class Tag(str):
    pass


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    "prices",
    [
        {1: 5},
        (5, 5),
        np.int64(5),
        np.float64(5),
        np.ones(2),
        float("nan"),
        Path("prices"),
        Level.LOW,
        Tag("a"),
        OrderedDict(a=5),
        {5},
        Shop,
    ],
    ids=str,
)
def test_what_json_would_change_is_refused_with_the_way(prices: Any, tmp_path: Path) -> None:
    saved = ROOT / "policies" / "Pendulum-v1.safetensors"
    begin = partial(train, **VALUES, run_dir=str(tmp_path))
    for env_kwargs in ({"prices": prices}, [{}, {"prices": [prices]}]):
        for take in (begin, partial(load_policy, saved)):
            with pytest.raises(ConfigError, match=r"prices holds .+ give lambda: MyEnv\(prices="):
                take(Shop, env_kwargs=env_kwargs)


def test_such_values_arrive_by_a_function(tmp_path: Path) -> None:
    prices = {1: np.int64(5), (2,): 0}
    summary = train(lambda: Shop(prices), **VALUES, run_dir=str(tmp_path))
    assert summary.evaluation.mean == 5
    assert load_policy(summary.checkpoint, lambda: Shop(prices)).evaluate().mean == 5


def test_keyword_arguments_arrive_in_their_order_and_as_often_as_they_are_loaded(
    tmp_path: Path,
) -> None:
    flags = {**VALUES, "run_dir": str(tmp_path), "resume": "auto"}
    kwargs = {"prices": {"b": 5, "a": 0}}
    summary = train(Shop, **flags, env_kwargs=kwargs)
    assert summary.evaluation.mean == 5
    assert load_policy(summary.checkpoint, Shop).evaluate().mean == 5
    assert train(Shop, **{**flags, "total_steps": 32}).evaluation.mean == 5
    kwargs["prices"]["b"] = 7
    assert load_policy(tmp_path, Shop, env_kwargs=kwargs).evaluate().mean == 7


def test_any_text_arrives_with_its_number(tmp_path: Path) -> None:
    texts = ['say "{index}"', '"{index}', "\\{index}", {"{index}": "{index}"}]
    summary = train(Shop, **VALUES, run_dir=str(tmp_path), env_kwargs={"prices": [1, *texts]})
    made: Any = load_policy(summary.checkpoint, Shop).make_env().unwrapped
    assert made.prices == [1, 'say "2"', '"2', "\\2", {"2": 2}]


@pytest.fixture
def register(
    gymnasium_registry: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """Register ids as a program of the user's does, until the end of a test, in which environments
    are isolated."""
    monkeypatch.undo()
    gymnasium.register("given/Shop-v0", "tests.shops:Shop", kwargs={"prices": [1]})
    yield gymnasium.register
    guard().close()


SHOP = "tests.shops:Shop"
WRAPPED = (WrapperSpec("Double", "tests.shops:Double", {}),)
SLOW = pytest.mark.slow


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"entry_point": SHOP, "kwargs": {"prices": (3,)}}, 3),
        ({"entry_point": lambda **options: Shop(np.array([3]))}, 3),
        pytest.param({"entry_point": partial(Shop, prices=(3,))}, 3, marks=SLOW),
        pytest.param({"entry_point": Shop, "additional_wrappers": WRAPPED}, 2, marks=SLOW),
        pytest.param({"entry_point": nested}, 2, marks=SLOW),
    ],
)
def test_an_id_of_the_program_trains_evaluates_loads_and_resumes(
    spec: Any, expected: float, register: Callable[..., None], tmp_path: Path
) -> None:
    register("Given-v0", **spec)
    own = gymnasium.spec("Given-v0")
    flags = {**VALUES, "run_dir": str(tmp_path), "resume": "auto"}
    summary = train("Given", **flags)
    assert summary.evaluation.mean == expected
    assert load_policy(summary.checkpoint).evaluate().mean == expected
    assert load_policy(summary.checkpoint, "Given-v0").evaluate().mean == expected
    assert train("Given", **{**flags, "total_steps": 32}).evaluation.mean == expected
    assert gymnasium.spec("Given-v0") is own


@pytest.mark.slow
def test_functions_configs_and_evaluations_take_ids_of_the_program(
    register: Callable[..., None], tmp_path: Path
) -> None:
    register("Given-v0", Shop, kwargs={"prices": [2]})
    for number, env in enumerate(
        [
            Config(env_name="given/Shop", eval_env="Given-v0", **VALUES),
            lambda: Double(gymnasium.make("given/Shop-v0")),
        ]
    ):
        assert train(env, run_dir=str(tmp_path / str(number)), **VALUES).evaluation.mean == 2
    flags = {**VALUES, "env_kwargs": {"prices": [4]}, "run_dir": str(tmp_path / "more")}
    more = train("Given-v0", **flags, eval_env=lambda prices: nested(prices=prices))
    assert more.evaluation.mean == 8


def test_an_id_that_the_program_has_registered_anew_is_its_own(
    register: Callable[..., None], tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match="Overriding"):
        register("CartPole-v1", Shop)
    summary = train("CartPole-v1", **VALUES, run_dir=str(tmp_path))
    assert summary.evaluation.mean == 1


@pytest.mark.slow
def test_an_id_that_cannot_be_sent_is_refused_only_if_it_is_made(
    register: Callable[..., None], tmp_path: Path
) -> None:
    register("Locked-v0", Shop, kwargs={"prices": Lock()})
    for env in ("Locked-v0", lambda: gymnasium.make("Locked-v0")):
        with pytest.raises(EnvironmentUnavailable, match=r"Locked-v0 cannot be sent .*_thread"):
            train(env, **VALUES, run_dir=str(tmp_path / "locked"))
    assert train("given/Shop-v0", **VALUES, run_dir=str(tmp_path / "run")).steps == 16


def test_a_function_that_asks_for_an_unknown_id_is_not_unknown_itself(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnavailable, match=r"<lambda> cannot be made: .*`Cart`"):
        train(lambda: gymnasium.make("Cart-v0"), **VALUES, run_dir=str(tmp_path))


@pytest.mark.slow
def test_a_command_line_is_told_to_name_the_module_of_an_id(
    register: Callable[..., None],
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register("Given-v0", Shop)
    train("Given-v0", **VALUES, run_dir=str(tmp_path / "run"))
    gymnasium.registry.pop("Given-v0")
    (tmp_path / "given_ids.py").write_text(
        "import gymnasium\ngymnasium.register('Given-v0', 'tests.shops:Shop')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    way = "give module:Given-v0 if a module of yours registers it"
    code, _, errors = call("--resume=run", "--total_steps=32", "--verbose=0")
    assert (code, errors.count("\n")) == (3, 1)
    assert way in errors
    code, _, errors = call("evaluate", "run", "--episodes=1")
    assert (code, errors.count("\n")) == (2, 1)
    assert way in errors
    named = "--env_name=given_ids:Given-v0"
    assert call("evaluate", "run", named, "--episodes=1")[0] == 0
    assert call("--resume=run", named, "--total_steps=32", "--verbose=0")[0] == 0
    register("Given-v0", Shop)  # and the program goes on with it
    flags = {**VALUES, "total_steps": 48}
    assert train("Given-v0", **flags, resume=str(tmp_path / "run")).steps == 48


def test_a_class_may_be_resumed_by_its_import_path_but_not_another(
    call: Call, tmp_path: Path
) -> None:
    train(Shop, **VALUES, run_dir=str(tmp_path))
    resume = (f"--resume={tmp_path}", "--total_steps=32", "--verbose=0")
    assert call(*resume, "--env_name=tests.environments:Identity")[0] == 3
    assert call(*resume, f"--env_name={SHOP}")[0] == 0


SCRIPT = """
    import sys
    import gymnasium
    from ppo import load_policy, train
    from tests.shops import Double, Shop

    class Mine(Shop):
        pass

    class Twice(Double, gymnasium.utils.RecordConstructorArgs):
        def __init__(self, env):
            gymnasium.utils.RecordConstructorArgs.__init__(self)
            Double.__init__(self, env)

    gymnasium.register("Mine-v0", f"{__name__}:Mine", kwargs={"prices": {1: 3}})
    gymnasium.register("Twice-v0", "__main__:Mine", additional_wrappers=[Twice.wrapper_spec()])
    flags = {"run_dir": "run", "resume": "auto", "num_envs": 2, "num_steps": 8, "num_workers": 2,
             "eval_episodes": 1, "report": False, "verbose": 0, "preset": "none"}
    other = lambda: Twice(gymnasium.make("Twice-v0"))
    summary = train("Mine-v0", **flags, total_steps=16)
    policy = load_policy("run", "Mine-v0")
    resumed = train("Mine-v0", **flags, total_steps=32, eval_env=other)
    print(summary.evaluation.mean, policy.evaluate().mean, resumed.evaluation.mean)
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["file", "interactive"])
def test_ids_of_classes_in_a_script_reach_its_workers(form: str, tmp_path: Path) -> None:
    script = textwrap.dedent(SCRIPT)
    (tmp_path / "script.py").write_text(script)
    ended = subprocess.run(
        [sys.executable, "script.py" if form == "file" else "-"],
        input=script if form == "interactive" else "",
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "3.0 3.0 4.0\n"
