"""The state of an LSTM or a GRU: carried from step to step and rollout to rollout, until an episode
ends."""

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.testing import assert_close

from ppo.algorithm.minibatches import draw_minibatches
from ppo.algorithm.rollout import Batch
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.envs.worker import RolloutInfo
from ppo.errors import ConfigError
from ppo.extras.recurrent.model import RecurrentTrunk
from tests.running import PLAIN, learn, make_components, make_network, trained, worker_of

N, T, H = 4, 24, 8
EACH_KIND = pytest.mark.parametrize("kind", ["lstm", "gru"])
SMALL = {"model": "lstm", "num_envs": N, "num_steps": T, "hidden_size": H, "num_minibatches": 2}


class Recall(gymnasium.Env):
    """Show 1 or -1, then 0 twice; knowing at the end which it was earns 1.

    What was right in the last episode is no help.
    """

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.bit, self.steps = int(self.np_random.integers(2)), 0
        return np.float32([2 * self.bit - 1]), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        ended = self.steps == 3
        return np.zeros(1, np.float32), float(ended and action == self.bit), ended, False, {}


@pytest.mark.parametrize(("model", "right"), [("lstm", True), ("gru", True), ("mlp", False)])
def test_an_lstm_or_a_gru_makes_use_of_earlier_observations(model: str, right: bool) -> None:
    values = {
        "env_name": "tests.extras.recurrent.test_recurrent:Recall",
        "model": model,
        "num_envs": 16,
        "num_steps": 16,
        "hidden_size": 16,
        "total_steps": 15 * 256,
        "num_minibatches": 2,
        "learning_rate": 1e-2,
        "gamma": 0.9,
        "eval_episodes": 50,
    }
    parts = Components(settings_of(Config(**{**PLAIN, **values})))
    worker = worker_of(parts, 16)
    for iteration in range(1, 16):
        learn(parts, worker.collect(iteration))
    mean = parts.policy().evaluate(50, num_envs=16).mean
    assert mean == 1 if right else mean < 0.8


def collected(
    env_name: str = "Counting-v0", rollouts: int = 1, **values: Any
) -> tuple[Components, RolloutInfo]:
    """A run whose weights have no small ones among them, and the last of its rollouts."""
    parts = make_components(env_name, **{**SMALL, "normalize_observations": True, **values})
    # As after some learning: Counting's numbers are large.
    parts.normalize_observation.load_state_dict(
        {"mean": np.array([2**15, 3.0]), "variance": np.array([2.0**28, 4.0]), "count": 1.0}
    )
    random = np.random.default_rng(0)
    parts.buffers.behaviour_weights[:] = random.normal(
        0, 0.5, parts.buffers.behaviour_weights.shape
    )
    parts.learner.weights.copy_(torch.from_numpy(parts.buffers.behaviour_weights))
    worker = worker_of(parts, N)
    for iteration in range(1, rollouts + 1):
        report = worker.collect(iteration)
    return parts, report


def seen(parts: Components) -> Tensor:
    """The rollout's observations as the network gets them: (T + 1, N, 2)."""
    return torch.from_numpy(parts.normalize_observation(parts.rollout.observations))


def remembered(trunk: RecurrentTrunk, observations: Tensor, states: Any) -> Tensor:
    """Return states (n, S) after observations (n, *observation).

    By the equations of Hochreiter and Schmidhuber 1997 and of Cho et al. 2014, as torch documents
    them.
    """
    states = torch.as_tensor(states)
    output, cell = states[:, : trunk.num_features], states[:, trunk.num_features :]
    weight_ih, weight_hh, bias_ih, bias_hh = dict(
        getattr(trunk, trunk.kind).named_parameters()
    ).values()
    of_inputs = (trunk.encoder(observations) @ weight_ih.T + bias_ih).split(trunk.num_features, -1)
    of_output = (output @ weight_hh.T + bias_hh).split(trunk.num_features, -1)
    if trunk.kind == "gru":
        reset, keep = (of_inputs[k] + of_output[k] for k in range(2))
        new = (of_inputs[2] + reset.sigmoid() * of_output[2]).tanh()
        return (1 - keep.sigmoid()) * new + keep.sigmoid() * output
    let_in, keep, new, let_out = (
        one + other for one, other in zip(of_inputs, of_output, strict=True)
    )
    cell = keep.sigmoid() * cell + let_in.sigmoid() * new.tanh()
    return torch.cat([let_out.sigmoid() * cell.tanh(), cell], -1)


def unrolled(trunk: RecurrentTrunk, observations: Tensor, states: Tensor, starts: Tensor) -> Tensor:
    """Return features (T * b, H), step by step."""
    features = []
    for rows, start in zip(observations.split(len(states)), starts.split(len(states)), strict=True):
        states = remembered(trunk, rows, states * ~start.unsqueeze(1))
        features.append(states[:, : trunk.num_features])
    return torch.cat(features)


@EACH_KIND
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_sequences_are_what_their_steps_are_one_by_one(kind: str, share: float) -> None:
    """So are all gradients. share: of the steps that begin an episode."""
    model = make_network(
        spaces.Box(-1, 1, (3,)), spaces.Discrete(2), model=kind, hidden_size=H, share_trunk=True
    )
    trunk = model.policy_trunk
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).requires_grad_()

    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.copy_(draw(*parameter.shape))
    observations, states = draw(T * N, 3), draw(N, trunk.state_size)
    starts = torch.rand(T * N, generator=generator) < share
    starts[1::N] = False  # an episode that only goes on
    weights = draw(T * N, H).detach()
    inputs = [observations, states, *trunk.parameters()]
    results = []
    for compute in (trunk, lambda *arguments: unrolled(trunk, *arguments)):
        features = compute(observations, states, starts)
        results.append([features, *torch.autograd.grad((features * weights).sum(), inputs)])
    for found, expected in zip(*results, strict=True):
        assert_close(found, expected, rtol=1e-4, atol=1e-5)


def batch_of(parts: Components, report: RolloutInfo) -> Batch:
    rollout = parts.rollout
    rollout.info = report
    return parts.learner.make_batch(rollout, parts.normalize_observation, rollout.rewards)


def ends(parts: Components) -> np.ndarray:
    return parts.rollout.terminations | parts.rollout.truncations


@EACH_KIND
@torch.no_grad()
def test_states_follow_the_equations_and_start_anew_with_an_episode(kind: str) -> None:
    parts, _ = collected(model=kind)
    states, observations = parts.rollout.states, seen(parts)
    assert not states[0].any()
    assert ends(parts).sum(0).min() >= 2
    for t in range(T):
        expected = remembered(parts.model.policy_trunk, observations[t], states[t])
        expected[ends(parts)[t]] = 0
        assert_close(torch.from_numpy(states[t + 1]), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(states).max() > 0.5


def test_states_are_carried_from_rollout_to_rollout() -> None:
    parts = make_components("Counting-v0", **SMALL)
    with parts.make_pool() as workers:
        workers.collect(1)
        for iteration in range(2, 7):
            last = parts.rollout.states[-1].copy()
            parts.rollout.states[1:-1] = 77  # what is left out would show
            workers.collect(iteration)
            np.testing.assert_array_equal(parts.rollout.states[0], last)
            step_of_the_episode = parts.rollout.observations[0, :, 1]
            assert (last.any(-1) == (step_of_the_episode > 0)).all()


def split(
    batch: Batch, *, num_epochs: int, batch_size: int | None = None, seed: int = 0
) -> list[Batch]:
    """Split a batch of whole sequences in two, or by a batch size, in each epoch."""
    found = draw_minibatches(
        SimpleNamespace(
            num_steps=T,
            num_envs=N,
            num_epochs=num_epochs,
            num_minibatches=2,
            batch_size=batch_size,
            rollout_size=T * N,
        ),
        T * N,
        sequence_length=T,
        seed=seed,
    )
    return [{name: tensor[part.rows] for name, tensor in batch.items()} for part in found]


def test_minibatches_are_whole_sequences_of_environments_in_the_order_of_time() -> None:
    parts, report = collected()
    batch = batch_of(parts, report)
    steps, environments = (
        table.flatten() for table in torch.meshgrid(torch.arange(T), torch.arange(N), indexing="ij")
    )
    minibatches = split({**batch, "step": steps, "environment": environments}, num_epochs=3)
    orders = []
    for first, second in zip(minibatches[::2], minibatches[1::2], strict=True):
        chosen = [part["environment"].view(T, -1) for part in (first, second)]
        for part, columns in zip((first, second), chosen, strict=True):
            assert columns.shape == (T, 2)
            assert (columns == columns[0]).all()
            assert (part["step"].view(T, -1) == torch.arange(T)[:, None]).all()
            rows = part["step"] * N + part["environment"]
            for name, table in batch.items():
                assert_close(part[name], table[rows], rtol=0, atol=0)
        orders.append(torch.cat([columns[0] for columns in chosen]).tolist())
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert len({tuple(order) for order in orders}) > 1


def test_a_batch_size_is_rounded_to_whole_sequences() -> None:
    batch = {"observations": torch.arange(T * N)}
    for batch_size, widths in ((1, [1, 1, 1, 1]), (T + 5, [1, 1, 1, 1]), (3 * T, [3, 1])):
        found = split(batch, num_epochs=1, batch_size=batch_size)
        assert [len(minibatch["observations"]) // T for minibatch in found] == widths


@EACH_KIND
@torch.no_grad()
def test_learning_starts_from_the_probabilities_that_were_acted_by(kind: str) -> None:
    parts, report = collected(model=kind, rollouts=3)
    batch = batch_of(parts, report)
    assert ends(parts)[:-1].any(0).all()
    assert parts.rollout.states[0].any()
    for minibatch in split(batch, num_epochs=2, seed=7):
        distribution, values = parts.learner.forward(minibatch)
        assert_close(
            distribution.log_prob(minibatch["actions"]),
            minibatch["log_probs"],
            rtol=1e-5,
            atol=1e-5,
        )
        assert_close(values, minibatch["values"], rtol=1e-5, atol=1e-5)
    assert batch["log_probs"].std() > 0.1


@torch.no_grad()
def test_a_truncated_episodes_last_value_has_its_own_memory() -> None:
    parts, report = collected(gamma=0.9, gae_lambda=0.0)
    batch, rollout = batch_of(parts, report), parts.rollout
    values, advantages = (batch[name].view(T, N) for name in ("values", "advantages"))
    lasts = report.last_observations
    assert len(lasts) > 3
    assert sorted((last.step, last.environment) for last in lasts) == sorted(
        zip(*rollout.truncations.nonzero(), strict=True)
    )
    for last in lasts:
        before = rollout.states[last.step, last.environment]
        state = remembered(
            parts.model.policy_trunk, seen(parts)[last.step, last.environment][None], before[None]
        )
        assert_close(torch.from_numpy(last.state)[None], state, rtol=1e-5, atol=1e-5)
        shown = torch.from_numpy(parts.normalize_observation(last.observation))[None]
        after = value_of(parts, remembered(parts.model.policy_trunk, shown, state))
        place = last.step, last.environment
        expected = rollout.rewards[place] + 0.9 * after - values[place]
        assert advantages[place].item() == pytest.approx(expected.item(), abs=1e-4)


@torch.no_grad()
def test_the_value_after_a_rollout_has_the_memory_of_its_last_row() -> None:
    parts, report = collected(gamma=0.9, gae_lambda=0.0)
    batch, rollout = batch_of(parts, report), parts.rollout
    goes_on = ~ends(parts)[-1]
    assert goes_on.any()
    after = value_of(
        parts, remembered(parts.model.policy_trunk, seen(parts)[-1], rollout.states[-1])
    )
    expected = rollout.rewards[-1] + 0.9 * after.numpy() - batch["values"].view(T, N)[-1].numpy()
    np.testing.assert_allclose(
        batch["advantages"].view(T, N)[-1].numpy()[goes_on], expected[goes_on], atol=1e-4
    )


def value_of(parts: Components, states: Tensor) -> Tensor:
    """Values (n,) of what is remembered."""
    return parts.model.value_head(states[:, :H]).squeeze(-1)


def test_an_lstm_on_images_learns_from_them() -> None:
    values = {**SMALL, "screen_size": 36, "frame_stack": 1, "num_steps": 4, "num_epochs": 1}
    values["total_steps"] = 2 * 4 * N
    before, after = (make("Camera", **values) for make in (make_components, trained))
    assert after.rollout.observations.shape == (5, N, 36 * 36 + 4 * 8)
    for old, new in zip(before.model.parameters(), after.model.parameters(), strict=True):
        assert new.isfinite().all()
        assert (old != new).any()


def test_more_minibatches_than_environments_are_refused() -> None:
    values = {"num_envs": 4, "num_minibatches": 5, "num_steps": 8}
    with pytest.raises(
        ConfigError,
        match=r"^--num_minibatches=5 splits sequences: give at most --num_envs=4 for a recurrent",
    ):
        make_components("Bandit-v0", model="lstm", **values)
    make_components("Bandit-v0", model="lstm", **{**values, "num_minibatches": 4})
    make_components("Bandit-v0", model="mlp", **values)


def test_policy_and_value_cannot_have_memories_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"^--share_trunk=False: leave it out"):
        make_components("Counting-v0", **SMALL, share_trunk=False)
