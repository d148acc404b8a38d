"""Networks: initial weights, what they compute, written out, and acting by them."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch.testing import assert_close

from ppo.models.actor_critic import as_tensor
from tests.running import disturb, make_network, running
from tests.worlds import Counting

CONTINUOUS = Box(-1, 1, (2,))
SMALL = Box(0, 255, (40, 48, 3), np.uint8)
IMAGE = {"image": "color", "frame_stack": 1, "screen_size": 40, "hidden_size": 16}
SHARING = pytest.mark.parametrize("share_trunk", [False, True], ids=["separate", "shared"])
GAINS = {"policy_trunk": 2**0.5, "value_trunk": 2**0.5, "policy_head": 0.01, "value_head": 1}
T, N, H = 24, 4, 8


@SHARING
def test_an_mlp_is_two_tanh_layers_and_a_linear_one(share_trunk):
    model = disturb(make_network(Box(-1, 1, (2, 3)), share_trunk=share_trunk))
    weights = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    observations = np.random.default_rng(0).normal(size=(5, 2, 3))

    def linear(layer: str, inputs: Any) -> Any:
        return inputs @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]

    def network(trunk: str, last: str) -> Any:
        first = np.tanh(linear(f"{trunk}.layers.0", observations.reshape(5, 6)))
        return linear(last, np.tanh(linear(f"{trunk}.layers.1", first)))

    distribution, values = model(torch.from_numpy(observations))
    trunk = "policy_trunk" if share_trunk else "value_trunk"
    expected = network(trunk, "value_head")[:, 0]
    np.testing.assert_allclose(values.detach(), expected, atol=1e-5)
    expected = network("policy_trunk", "policy_head.logits")
    np.testing.assert_allclose(distribution.logits.detach()[:, 0], expected, atol=1e-5)


# Recurrent networks.


def remembered(trunk: Any, observations: Any, states: Any) -> Any:
    """Return states (n, S) after observations (n, *observation), by the equations of Hochreiter and
    Schmidhuber 1997 and of Cho et al. 2014, as torch documents them."""
    states = torch.as_tensor(states)
    output, cell = states[:, : trunk.num_features], states[:, trunk.num_features :]
    weight_ih, weight_hh, bias_ih, bias_hh = trunk.weights
    of_inputs = (trunk.encoder(observations) @ weight_ih.T + bias_ih).split(trunk.num_features, -1)
    of_output = (output @ weight_hh.T + bias_hh).split(trunk.num_features, -1)
    if trunk.kind == "gru":
        reset, keep = (of_inputs[k] + of_output[k] for k in range(2))
        new = (of_inputs[2] + reset.sigmoid() * of_output[2]).tanh()
        return (1 - keep.sigmoid()) * new + keep.sigmoid() * output
    gates = (one + other for one, other in zip(of_inputs, of_output, strict=True))
    let_in, keep, new, let_out = gates
    cell = keep.sigmoid() * cell + let_in.sigmoid() * new.tanh()
    return torch.cat([let_out.sigmoid() * cell.tanh(), cell], -1)


def unrolled(trunk: Any, observations: Any, states: Any, starts: Any) -> Any:
    """Return features (T * b, H), step by step."""
    features = []
    for rows, start in zip(observations.split(len(states)), starts.split(len(states)), strict=True):
        states = remembered(trunk, rows, states * ~start.unsqueeze(1))
        features.append(states[:, : trunk.num_features])
    return torch.cat(features)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_sequences_are_what_their_steps_are_one_by_one(kind, share):
    """So are all gradients. share: of the steps that begin an episode."""
    trunk = make_network(model=kind, hidden_size=H).policy_trunk
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Any:
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


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@torch.no_grad()
def test_states_follow_the_equations_from_rollout_to_rollout_and_end_with_an_episode(
    kind, tmp_path
):
    flags = {"model": kind, "gamma": 0.9, "gae_lambda": 0.0, "normalize_observations": True}
    with running(Counting, tmp_path, num_steps=T, **flags) as run:
        run.normalize.statistics.mean[:] = [2**15, 3]
        run.normalize.statistics.variance[:] = [2.0**28, 4]
        disturb(run.model)
        run.publish()
        trunk, rollout = run.model.policy_trunk, run.rollout
        before = np.zeros_like(rollout.states[-1])
        for _ in range(3):
            rollout = run.collect()
            np.testing.assert_array_equal(rollout.states[0], before)
            before = rollout.states[-1].copy()
        seen = torch.from_numpy(run.normalize(rollout.observations))
        for t in range(T):
            expected = remembered(trunk, seen[t], rollout.states[t])
            expected[rollout.dones[t]] = 0
            found = torch.from_numpy(rollout.states[t + 1])
            assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert rollout.dones.sum(0).min() >= 2
        assert before.any()
        batch = run.make_batch(rollout)
        distribution, values = run.learner.forward(batch)  # as whole sequences
        log_probs = distribution.log_prob(batch["actions"])
        assert_close(log_probs, batch["log_probs"], rtol=1e-4, atol=1e-5)
        assert_close(values, batch["values"], rtol=1e-4, atol=1e-5)
        # A truncated episode's last value has its own memory.
        advantages = batch["advantages"].view(T, N)
        for t, i in np.argwhere(rollout.truncations):
            state = remembered(trunk, seen[t, i][None], rollout.states[t, i][None])
            last = run.normalize(rollout.observations[t, i] + [0, 1])
            state = remembered(trunk, torch.from_numpy(last)[None], state)
            after = run.model.value_head(state[:, : trunk.num_features]).item()
            error = rollout.rewards[t, i] + 0.9 * after - values.view(T, N)[t, i]
            assert advantages[t, i].item() == pytest.approx(error.item(), abs=1e-3)
        assert rollout.truncations.sum() > 3


# Networks of one's own, and acting.


def test_tensors_begin_at_multiples_of_64_bytes():
    """Products of matrices that begin elsewhere have other last bits."""
    memory = np.zeros(1000, np.float32)
    first = -memory.ctypes.data % 64 // 4
    aligned, shifted = memory[first : first + 9], memory[first + 1 : first + 10]
    assert as_tensor(aligned).data_ptr() == aligned.ctypes.data
    assert as_tensor(shifted).data_ptr() % 64 == 0
