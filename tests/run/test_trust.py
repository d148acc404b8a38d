"""Code that a saved run names: what is to be repeated is said once, and repeating it suffices."""

import shlex
from pathlib import Path

from ppo import train
from ppo.config.flags import as_arguments
from tests.environments import Bandit
from tests.running import TINY, Call

ENV = "tests.environments:Bandit-v0"
MODEL = "examples.own_model:NormalizedActorCritic"
CALLBACK = "examples.own_callback:Snapshots"
WRAPPERS = ["gymnasium.wrappers:FlattenObservation", "tests.envs.test_env_factories:Plain"]
SIZES = {name: value for name, value in {**TINY, "total_steps": 32}.items() if name != "env_name"}


def advised(errors: str) -> list[str]:
    """Return the flags that an error says to repeat."""
    assert errors.count("\n") == 1
    return shlex.split(errors.partition("if you trust it, repeat ")[2])


def test_all_code_of_a_run_is_trusted_at_once(tmp_path: Path, call: Call) -> None:
    logger = f"--logger=tests.run.test_own_logger:Lines(path='{tmp_path / 'a file'}')"
    wrappers = [f"--wrapper={text}" for text in WRAPPERS]
    own = [f"--env_name={ENV}", *wrappers, f"--callback={CALLBACK}", f"--model={MODEL}", logger]
    run = str(tmp_path / "run")
    more = [f"--resume={run}", "--total_steps=64", "--verbose=0", "--report=False"]
    played = [flag for flag in own if not flag.startswith(("--callback", "--logger"))]
    assert call(*own, *as_arguments(SIZES), f"--run_dir={run}")[::2] == (0, "")
    for line, flags in ((more, own), (["evaluate", run, "--episodes=1"], played)):
        code, _, errors = call(*line)
        assert (code, sorted(advised(errors))) == (3, sorted(flags))
        assert call(*line, *advised(errors))[::2] == (0, "")


def test_a_class_is_asked_for_together_with_other_code(tmp_path: Path, call: Call) -> None:
    run = str(tmp_path / "run")
    logger = f"tests.run.test_own_logger:Lines(path='{tmp_path / 'file'}')"
    train(Bandit, **SIZES, logger=["none", logger], eval_env=Bandit, run_dir=run)
    code, _, errors = call(f"--resume={run}", "--total_steps=64")
    assert code == 3
    again = "is of the class or function <Bandit>: give it again, by"
    assert f"{again} load_policy(path, env), train(env, ...) or --env_name=module:Name" in errors
    assert f"{again} train(..., eval_env=...) or --eval_env=module:Name" in errors
    assert advised(errors) == ["--logger=none", f"--logger={logger}"]
