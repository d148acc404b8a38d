"""What editors and type checkers know of ppo: its names, and the fields of Config."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ppo
from tests.running import ROOT

RIGHT = """
from pathlib import Path

from ppo import Config, load_policy, train, tuned_config

summary = train(
    "CartPole-v1",
    num_envs=4,
    learning_rate="linear:1e-3",
    entropy_coef=lambda remaining: 0.01 * remaining,
    gamma=1,
    target_kl=None,
    num_workers="auto",
    wrapper=["a:B"],
    env_kwargs={"size": 3},
    run_dir=Path("runs"),
    model="mlp",
)
policy = load_policy(summary.checkpoint, precision="float32")
print(policy.evaluate(episodes=1).mean, tuned_config("CartPole-v1", learner="auto").gamma)
train(Config(env_name="CartPole-v1", num_envs=4), seed=1)
"""
# The line, and what is said of it. A name that ppo lacks is no error: an extension may export it.
WRONG = {
    'ppo.train("CartPole-v1").steps.x': '"int" has no attribute "x"',
    "ppo.Config(gama=1)": 'Unexpected keyword argument "gama"',
    'ppo.Config(num_envs="4")': 'Argument "num_envs" to "Config" has incompatible',
}


def test_editors_are_told_the_names_that_are_imported_late() -> None:
    tree = ast.parse((ROOT / "ppo" / "__init__.py").read_text())
    (branch,) = (node for node in tree.body if isinstance(node, ast.If))
    told = {
        str(name.asname): f"{node.module}:{name.name}"
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert told == ppo.LAZY


@pytest.mark.slow
def test_a_wrong_flag_in_a_script_is_found_by_mypy(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text("\n".join(["import ppo", *WRONG]))
    config = ["--config-file=", "--strict", "--follow-imports=silent", "--ignore-missing-imports"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *config, "right.py", "wrong.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    *lines, last = done.stdout.splitlines()
    found = [line for line in lines if ": note: " not in line]
    assert last.startswith(f"Found {len(WRONG)} errors in 1 file")
    for number, (error, said) in enumerate(zip(found, WRONG.values(), strict=True), 2):
        assert error.startswith(f"wrong.py:{number}: error: {said}")
