"""Action masks, from the environment's info to the gradient: forbidden actions do not exist."""

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.envs.errors import WorkerError
from ppo.envs.pool import WorkerPool
from ppo.envs.seeding import Stream, integer_seed
from ppo.models.distributions import Categorical
from tests.environments import SPACES, Identity
from tests.running import PLAIN, learn, make_components, make_env, worker_of

N, T = 3, 8


class Locked(Identity):
    """Draws which values of a choice and two bits it allows, in every second observation only.

    Otherwise all are allowed. A forbidden action ends the run."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = SPACES["Discrete"], SPACES["Dict"]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        return super().reset(seed=seed)[0], self._allow()

    def step(self, action: dict) -> tuple[Any, float, bool, bool, dict]:
        assert self.allowed["a"][action["a"]], "a forbidden choice"
        assert all(
            pair[bit]
            for pair, bit in zip(self.allowed["c"].reshape(2, 2), action["c"], strict=True)
        )
        return *super().step(action)[:4], self._allow()

    def _allow(self) -> dict:
        self.allowed = {"a": np.ones(2, np.int8), "b": None, "c": np.ones(4, np.int8)}
        if self.steps % 2:
            return {}
        for pair in (self.allowed["a"], *self.allowed["c"].reshape(2, 2)):
            pair[self.np_random.integers(2)] = self.np_random.integers(2)
        return {"action_mask": self.allowed}


class Jammed(Identity):
    """Allows nothing any more after some steps."""

    def __init__(self) -> None:
        super().__init__("Discrete", "Discrete")

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        return super().reset(seed=seed)[0], {"action_mask": [1, 1, 1]}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        return *super().step(action)[:4], {"action_mask": [self.steps < 3] * 3}


def run_of(env_name: str, **values: Any) -> Components:
    """Make the parts of a run in an environment of this file."""
    return Components(
        settings_of(Config(**{"env_name": f"tests.envs.test_masks:{env_name}", **PLAIN, **values}))
    )


def replayed(env: gymnasium.Env, actions: list[Any], to_row: Any) -> list[np.ndarray]:
    """Replay actions; return the mask before each of them and after the last, row by row."""
    episode, rows = 0, []
    info = env.reset(seed=integer_seed(0, Stream.EPISODE, 0, 0))[1]
    for action in actions:
        rows.append(to_row(info))
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            episode += 1
            info = env.reset(seed=integer_seed(0, Stream.EPISODE, 0, episode))[1]
    return [*rows, to_row(info)]


def test_a_row_of_masks_is_what_was_allowed_when_its_action_was_taken() -> None:
    parts = make_components("Masked-v0", num_envs=N, num_steps=T)
    actions, masks = [], []
    with WorkerPool(parts.make_worker, N, 0) as workers:
        for iteration in (1, 2, 3):
            workers.collect(iteration)
            assert parts.rollout.action_masks.shape == (T + 1, N, 4)
            actions += parts.rollout.actions[:, 0, 0].tolist()
            masks += parts.rollout.action_masks[:-1, 0].tolist()
    last = parts.rollout.action_masks[-1, 0].tolist()
    env = make_env("tests.environments:Masked-v0")
    expected = replayed(
        env,
        [action - 1 for action in actions],
        lambda info: info["action_mask"].astype(bool).tolist(),
    )
    assert [*masks, last] == expected
    assert len({tuple(mask) for mask in masks}) == 2


def test_masks_of_nested_spaces_are_kept_to() -> None:
    parts = run_of("Locked", num_envs=N, num_steps=40, total_steps=5 * 40 * N)
    with WorkerPool(parts.make_worker, N, 0) as workers:
        for iteration in range(1, 6):
            learn(parts, workers.collect(iteration))  # a forbidden action would raise
            masks, actions = parts.rollout.action_masks[:-1], parts.rollout.actions
            assert masks.shape == (40, N, 2 + 2 * 2)
            chosen = actions[..., [0, 2, 3]].astype(int)  # between them is a number
            assert np.take_along_axis(masks.reshape(40, N, 3, 2), chosen[..., None], -1).all()
            assert 0.5 < masks.mean() < 1
    assert parts.policy().evaluate(20, num_envs=N).episodes == 20


def test_an_environment_that_allows_no_action_is_an_error() -> None:
    parts = run_of("Jammed", num_envs=1, num_steps=20)
    with pytest.raises(
        WorkerError, match=r"environment 0 of .*Jammed raised ValueError: .* allows no action"
    ):
        worker_of(parts, 1).run("collect", 1)


def test_forbidden_logits_have_no_gradient_at_all() -> None:
    torch.manual_seed(0)
    logits = torch.randn(50, 2, 4, requires_grad=True)
    mask = torch.rand(50, 2, 4) < 0.5
    mask[..., 1] = True
    distribution = Categorical(logits).masked(mask.flatten(1))
    actions = distribution.sample(torch.randn(50, 8))
    (distribution.log_prob(actions) + 0.1 * distribution.entropy()).sum().backward()
    assert (logits.grad[~mask] == 0).all()
    assert (logits.grad[mask & (mask.sum(-1, keepdim=True) > 1)] != 0).all()
    assert logits.grad.isfinite().all()


def test_allowed_actions_have_the_odds_that_they_would_have_without_a_mask() -> None:
    torch.manual_seed(0)
    logits, mask = torch.randn(50, 5), torch.rand(50, 5) < 0.6
    mask[:, 0] = True
    mask[:, 4] = False
    masked = Categorical(logits.unsqueeze(1)).masked(mask)
    odds = torch.where(mask, logits.exp(), 0)
    torch.testing.assert_close(masked.entropy(), torch.distributions.Categorical(odds).entropy())
    for action in range(5):
        probabilities = masked.log_prob(torch.full((50, 1), action)).exp()
        torch.testing.assert_close(probabilities, odds[:, action] / odds.sum(1))
    assert masked.mode()[:, 0].tolist() == odds.argmax(1).tolist()


def test_log_probabilities_that_are_learned_from_are_among_what_was_allowed() -> None:
    parts = make_components("Masked-v0", num_envs=N, num_steps=T)
    rollout = parts.finish_collect(1, worker_of(parts, N).collect(1))
    batch = parts.make_batch(rollout)
    logits = parts.model(torch.from_numpy(rollout.observations[:-1]).flatten(0, 1))[0].logits[:, 0]
    for row, (mask, action) in enumerate(
        zip(rollout.action_masks[:-1].reshape(-1, 4), batch["actions"], strict=True)
    ):
        allowed = logits[row, torch.from_numpy(mask)].softmax(0)
        expected = allowed[int(mask[: int(action.item())].sum())].log()
        assert float(batch["log_probs"][row]) == pytest.approx(expected.item(), abs=1e-5)
    assert batch["log_probs"].tolist() == pytest.approx(
        [-math.log(2)] * (N * T), abs=0.05
    )  # a new policy's
