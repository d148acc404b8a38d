"""The learners of examples/: each learns what it is an example of, and is resumed bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from examples.mirror import MirrorCartPole
from examples.random_network_distillation import SIZE
from ppo import Callback, Config, Learner, train
from ppo.components import Components
from ppo.config.settings import settings_of
from ppo.run.checkpoint import LAST, load
from tests.running import CARTPOLE, TINY, assert_same

CURIOUS = {
    "env_name": "examples.random_network_distillation:DeepSea",
    "learner": "examples.random_network_distillation:Curious",
    "normalize_rewards": False,
}
GROUPS = {
    "env_name": "examples.reward_groups:Reach",
    "learner": "examples.reward_groups:GroupLearner",
    "model": "examples.reward_groups:GroupCritic",
    "reward_term": ["reach", "effort"],
}


class Asymmetry(Callback):
    """Measure E[KL(pi(.|s) || M(pi(.|M(s))))] of the last policy in states drawn at random."""

    def on_end(self, run: Any) -> None:
        states = np.random.default_rng(0).normal(0, [1, 1, 0.1, 1], (1000, 4)).astype(np.float32)
        normalize, model = run.parts.normalize_observation, run.parts.model
        with torch.no_grad():
            seen, mirrored = (model(torch.as_tensor(normalize(x)))[0] for x in (states, -states))
            self.divergence = float(mirrored.kl_from(seen.log_probs.flip(-1)).mean())


class StopAt(Callback):
    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def on_iteration(self, run: Any) -> None:
        if run.iteration == self.iteration:
            run.stop("half of it")


def test_a_mirror_loss_makes_a_policy_symmetric(tmp_path: Path) -> None:
    divergence = {}
    for learner in (Learner, MirrorCartPole):
        measure = Asymmetry()
        flags = {**CARTPOLE, "total_steps": 1024, "learning_rate": 1e-2, "eval_episodes": 0}
        config = Config(**flags, run_dir=str(tmp_path / learner.__name__))
        train(config, learner=learner, callbacks=[measure])
        divergence[learner] = measure.divergence
    assert divergence[Learner] > 20 * divergence[MirrorCartPole] > 0


def test_curiosity_is_about_what_is_new() -> None:
    learner: Any = Components(settings_of(Config(**{**TINY, **CURIOUS}))).learner
    often, never = torch.eye(2 * SIZE)[[0, SIZE]].repeat(64, 1), torch.eye(2 * SIZE)[[5, SIZE + 5]]
    before = learner.errors(never).mean()
    for _ in range(100):
        learner.learn_to_predict(often)
    assert learner.errors(often).mean() < 0.01 * before
    assert learner.errors(never).mean() > 0.1 * before


@pytest.mark.parametrize("flags", [CURIOUS, GROUPS], ids=["curiosity", "groups"])
def test_a_learner_with_a_state_of_its_own_is_resumed_bit_for_bit(
    flags: dict[str, Any], tmp_path: Path
) -> None:
    states = []
    for name, stops in {"whole": (), "half": (3,)}.items():
        config = Config(**{**TINY, "total_steps": 96, **flags, "run_dir": str(tmp_path / name)})
        train(config, callbacks=[StopAt(iteration) for iteration in stops])
        if stops:
            train(config, resume=config.run_dir)
        states.append(load(tmp_path / name / "checkpoints" / LAST))
    assert states[0]["iteration"] == 6
    assert_same(*states)
    assert any(name.startswith(("rnd.", "reward_term.")) for name in states[0])


def test_groups_of_rewards_outweigh_their_units(tmp_path: Path) -> None:
    """What is reached is worth a hundredth of its effort, and is learned all the same."""
    reached = {}
    for name, given in {"groups": GROUPS, "their sum": {"env_name": GROUPS["env_name"]}}.items():
        flags = {**CARTPOLE, **given, "total_steps": 2048, "learning_rate": 3e-3}
        summary = train(Config(**flags, run_dir=str(tmp_path / name)))
        reached[name] = summary.evaluation.env["success_rate"]
    assert reached["groups"] == 1
    assert reached["their sum"] < 0.5  # it stands still, and some episodes begin there


@pytest.mark.slow
def test_curiosity_finds_a_treasure_that_is_not_found_without(tmp_path: Path) -> None:
    found = {}
    for learner in (CURIOUS["learner"], "auto"):
        flags = {**CURIOUS, "learner": learner, "total_steps": 60_000, "seed": 1, "verbose": 0}
        summary = train(Config(**flags, preset="none", run_dir=str(tmp_path / learner[:4])))
        found[learner] = summary.evaluation.env["success_rate"]
    assert found == {CURIOUS["learner"]: 1, "auto": 0}
