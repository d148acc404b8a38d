"""Checkpoints that someone has changed and sealed again: used, or refused before they do harm."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.parts.fault_files import filled, reseal
from ppo import load_policy
from ppo.errors import CheckpointError
from tests.running import BRIEF, Call, run_main

State = dict[str, Any]
NAN = math.nan
MOMENTS = "optimizer.exp_avg"


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[State], State]:
    return lambda state: {name: change(state[name])}


def full(name: str, number: float) -> Callable[[State], State]:
    return lambda state: filled(state, name, number)


def value(name: str, content: Any) -> Callable[[State], State]:
    return lambda state: {name: content}


REFUSED: dict[str, list[Callable[[State], State]]] = {
    MOMENTS: [
        changed(MOMENTS, lambda x: x[:0]),
        changed(MOMENTS, lambda x: x[None]),
        changed(MOMENTS, torch.Tensor.double),
        full(MOMENTS, math.inf),
        value(MOMENTS, "x"),
    ],
    "optimizer": [full("optimizer.exp_avg_sq", -1.0), full("optimizer.step", -3.0)],
    "optimizer.step": [
        changed("optimizer.step", lambda x: x[None]),
        value("optimizer.step", 3),
    ],
    "model.value_head.weight": [full("model.value_head.weight", NAN)],
    "normalize_observation.variance": [full("normalize_observation.variance", -1.0)],
    "normalize_observation.mean": [full("normalize_observation.mean", 1e308)],
    "normalize_reward.returns": [full("normalize_reward.returns", 1e308)],
    "normalize_reward.count": [
        full("normalize_reward.count", -1.0),
        changed("normalize_reward.count", torch.Tensor.cfloat),
    ],
    "generator.cpu": [changed("generator.cpu", lambda x: x[:-1])],
    "episodes.begun": [full("episodes.begun", 2**63 - 1), full("episodes.begun", -1)],
    "episodes.recent": [
        changed("episodes.recent", lambda x: x.T.contiguous()),
        full("episodes.recent", -1e308),
    ],
    "open_episodes.lengths": [changed("open_episodes.lengths", torch.Tensor.double)],
    "open episodes": [
        full("open_episodes.lengths", 2**62),
        value("open_episodes.attributes", torch.tensor([*b"[7, 7, 7, 7]"], dtype=torch.uint8)),
    ],
    "open_episodes.actions": [changed("open_episodes.actions", torch.Tensor.double)],
    "iteration": [value("iteration", number) for number in (None, True, -1, 1.5)],
    "learning_rate": [value("learning_rate", number) for number in (NAN, -1, "x")],
    "num_skipped": [value("num_skipped", -1)],
    "faults": [value("faults", {"worker_lost": "x"})],
    "episodes.metrics": [value("episodes.metrics", x) for x in ({"a": 1}, {"a": ["x"]})],
    "episodes.counts": [
        value("episodes.counts", x)
        for x in ([1], {"episode_return_mean": [0.5]}, {"episode_return_mean": [-1, 1]})
    ],
    "episodes.waiting": [value("episodes.waiting", x) for x in (["x"], 1)],
    "made_with": [value("made_with", [1])],
    "env_attributes": [value("env_attributes", x) for x in (None, {"a": NAN}, {"colour": "red"})],
    "best": [value("callbacks.KeepBest.0.best", number) for number in ("x", NAN, math.inf)],
    "best_iteration": [value("callbacks.KeepBest.0.best_iteration", x) for x in (None, -1)],
}
CASES = [(name, change) for name, changes in REFUSED.items() for change in changes]


def assert_refused(code: int, errors: str, *words: str) -> None:
    assert (code, errors.count("\n")) == (3, 1), errors
    assert errors.startswith("error: ")
    assert not re.search(r"Traceback|NoneType|object has no", errors)
    for word in words:
        assert word in errors


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with statistics."""
    folder = tmp_path_factory.mktemp("sealed") / "run"
    flags = ["--normalize_observations=True", "--normalize_rewards=True", "--eval_episodes=0"]
    sizes = ["--num_steps=16", "--hidden_size=8", "--num_minibatches=1", "--num_epochs=1"]
    sizes.append("--num_iterations=4")
    steps = [flag for flag in BRIEF if "steps" not in flag]
    done = run_main(*steps, *flags, *sizes, f"--run_dir={folder}")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def run(source: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(source, tmp_path / "run", symlinks=True))


def resume(call: Call, folder: Path, *flags: str) -> tuple[int, str]:
    code, _, errors = call(
        f"--resume={folder}", "--num_iterations=6", "--verbose=0", "--report=False", *flags
    )
    return code, errors


@pytest.mark.slow
def test_moments_of_another_size_end_no_process_by_a_signal(run: Path) -> None:
    path = reseal(run, changed(MOMENTS, lambda x: x[:0]))
    done = run_main(f"--resume={run}", "--num_iterations=6")
    assert_refused(done.returncode, done.stderr, str(path), f"{MOMENTS} is torch.float32 (0,)")


@pytest.mark.parametrize(("name", "change"), CASES)
def test_a_malformed_state_is_refused_in_a_sentence_that_names_it(
    name: str, change: Callable[[State], State], run: Path, call: Call
) -> None:
    path = reseal(run, change)
    assert_refused(*resume(call, run), str(path), name)


def test_what_is_sealed_again_without_a_change_is_resumed(run: Path, call: Call) -> None:
    reseal(run, lambda state: {**state, "optimizer.new": torch.zeros(3), "faults": {}})
    assert resume(call, run) == (0, "")


@pytest.mark.parametrize(
    ("name", "number"),
    [("model.policy_trunk.layers.0.weight", NAN), ("normalize_observation.variance", -1.0)],
)
def test_no_command_acts_by_numbers_that_cannot_be(
    name: str, number: float, run: Path, tmp_path: Path, call: Call
) -> None:
    path = reseal(run, full(name, number))
    new = [*BRIEF, f"--run_dir={tmp_path / 'new'}"]
    for line in (
        ["evaluate", str(run), "--episodes=1"],
        ["evaluate", str(path), "--episodes=1"],
        ["export", str(path), str(tmp_path / "policy.onnx")],
        [*new, f"--init_from={path}", "--hidden_size=8", "--normalize_observations=True"],
        [*new, f"--init_from={path}", "--init_partial=True"],
        [*new, f"--teacher={path}"],
    ):
        code, _, errors = call(*line)
        assert_refused(code, errors, str(path), name)
    with pytest.raises(CheckpointError, match=name):
        load_policy(path)


def test_attributes_that_cannot_be_set_are_traced_to_the_checkpoint(run: Path, call: Call) -> None:
    path = reseal(run, value("env_attributes", {"colour": "red"}))
    code, _, errors = call("evaluate", str(run), "--episodes=1")
    assert_refused(code, errors, str(path), "env_attributes")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"callbacks.Rising.0.level": "x"}, "level is a text, here a number"),
        ({"env_attributes": {"level": "x"}}, "env_attributes"),
        ({"env_attributes": {"other": 1}}, "env_attributes"),
    ],
)
def test_a_curriculum_that_is_malformed_is_refused(
    change: State, words: str, tmp_path: Path, call: Call
) -> None:
    own = ["--env_name=tests.hooks:Levels", "--callback=tests.hooks:Rising"]
    begun = call(*own, *BRIEF[1:], "--num_iterations=4", f"--run_dir={tmp_path}", "--report=False")
    assert begun[0] == 0, begun
    reseal(tmp_path, lambda state: change)
    assert_refused(*resume(call, tmp_path, *own), words)


@pytest.mark.parametrize(
    "optimizer", ["torch.optim:SGD(momentum=0.9)", "torch.optim:AdamW(amsgrad=True)"]
)
def test_the_state_of_any_optimizer_is_compared_with_what_its_step_makes(
    optimizer: str, tmp_path: Path, call: Call
) -> None:
    flags = ["--num_iterations=4", "--report=False", f"--run_dir={tmp_path / 'run'}"]
    code, _, errors = call(*BRIEF, f"--optimizer={optimizer}", *flags)
    assert code == 0, errors
    names: list[str] = []

    def cut(state: State) -> State:
        names.extend(sorted(name for name in state if re.match(r"optimizer\.(m|exp)", name)))
        return {names[-1]: state[names[-1]][:1]}

    good = shutil.copytree(tmp_path / "run", tmp_path / "good", symlinks=True)
    own = f"--optimizer={optimizer}"
    reseal(tmp_path / "run", cut)
    assert_refused(*resume(call, tmp_path / "run", own), names[-1])
    assert resume(call, good, own)[0] == 0
