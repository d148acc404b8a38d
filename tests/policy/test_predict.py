"""What a policy answers, to one observation or n of them."""

from typing import Any

import numpy as np
import pytest
import torch

from ppo import Policy
from ppo.components import Components
from ppo.models.noise import MASKED_LOGIT
from tests.running import learn, make_components

SMALL = {"screen_size": 36, "model": "cnn_small", "hidden_size": 8, "precision": "float32"}
N, T = 4, 6
UNCLIPPED = {"log_std_init": -3, "normalize_observations": True}  # a Box's numbers


def identity(shown: str, done: str, **values: Any) -> dict[str, Any]:
    """Settings of a policy for two spaces of tests.environments."""
    return {"env_name": "Identity-v0", "env_kwargs": {"shown": shown, "done": done}, **values}


CASES = {
    "mlp": identity("Box", "Discrete", normalize_observations=True),
    "numbers": identity("Dict", "Unbounded"),
    "nested": identity("Tuple", "Tuple", **UNCLIPPED),
    "squashed": identity("Box", "Box", squash_actions=True),
    "masks": {"env_name": "Masked-v0"},
    "masks of two choices": {"env_name": "MaskedPair"},
    "lstm": identity("Box", "Dict", model="lstm", hidden_size=8, **UNCLIPPED),
    "cnn": {"env_name": "Camera", **SMALL, "normalize_observations": True},
}
every_kind = pytest.mark.parametrize("values", CASES.values(), ids=CASES)


def run_of(values: dict[str, Any]) -> Components:
    return make_components(
        **{"num_envs": N, "num_steps": T, "total_steps": 2 * N * T, "num_minibatches": 1, **values}
    )


def seen_by(policy: Policy, count: int, **options: Any) -> list[tuple[Any, Any]]:
    """Return what a policy's environment shows, and infos; no observation depends on actions."""
    env = policy.make_env(**options)
    observation, info = env.reset(seed=0)
    found = []
    for _ in range(count):
        found.append((observation if options else observation.copy(), info))
        action = env.action_space.sample()
        if policy.to_mask:
            action = policy.predict(observation, False, info, policy.initial_state())
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            observation, info = env.reset()
    return found


@every_kind
def test_log_probs_and_values_are_those_that_the_learner_computes(values: dict[str, Any]) -> None:
    parts = run_of(values)
    with parts.make_pool() as workers:
        learn(parts, workers.collect(1))  # after which there are statistics
        policy = parts.policy()
        info = workers.collect(2)
        rollout = parts.finish_collect(2, info)
        batch = parts.make_batch(rollout)

    def rows(table: np.ndarray) -> np.ndarray:
        return table[:-1].reshape(N * T, *table.shape[2:])

    actions = policy.to_actions(rollout.actions.reshape(N * T, -1))
    infos = None
    if policy.to_mask:  # which pads each choice to as many values as the largest has
        exists = policy.to_mask(None)
        infos = [{"action_mask": mask[exists]} for mask in rows(rollout.action_masks)]
    asked = {"state": rows(rollout.states).copy()}
    found = policy.log_probs(rows(rollout.observations), actions, infos, **asked)
    assert found.shape == (N * T,)
    rough = 1e-3 if "squash_actions" in values else 1e-5  # undoes tanh in float32
    np.testing.assert_allclose(found, np.asarray(batch["log_probs"]), atol=rough)
    values_found = policy.values(rows(rollout.observations), **asked)
    np.testing.assert_allclose(values_found, np.asarray(batch["values"]), atol=1e-5)
    np.testing.assert_array_equal(asked["state"], rows(rollout.states))
    assert np.std(found) > 0 or values["env_name"] == "Masked-v0"
    assert np.std(values_found) > 0


@every_kind
def test_a_batch_is_answered_as_its_rows_one_by_one(values: dict[str, Any]) -> None:
    policy = run_of(values).policy()
    observations, infos = zip(*seen_by(policy, 2 * N), strict=True)
    batches = np.stack(observations).reshape(2, N, *observations[0].shape)
    states = policy.initial_state(N)
    own = [policy.initial_state() for _ in range(N)]
    for t, batch in enumerate(batches):
        given = [*infos[t * N : (t + 1) * N]]
        before = states.copy()
        answers = [policy.values(batch, before)]
        actions = policy.predict(batch, info=given, state=states)
        answers.append(policy.log_probs(batch, actions, given, before))
        assert policy.spaces.actions.contains(actions[0])
        for i, one in enumerate(batch):
            value = policy.values(one, own[i])
            state = own[i].copy()
            action = policy.predict(one, info=given[i], state=own[i])
            log_prob = policy.log_probs(one, action, given[i], state)
            assert [value, log_prob] == pytest.approx([each[i] for each in answers], abs=1e-5)
            for part, expected in zip(leaves_of(action), leaves_of(actions[i]), strict=True):
                np.testing.assert_allclose(part, expected, atol=1e-5)
        np.testing.assert_allclose(np.concatenate(own), states, atol=1e-5)
        assert states.any() == bool(states.size)


def leaves_of(action: Any) -> list[Any]:
    """Return the numbers of an action, however nested."""
    if isinstance(action, dict):
        action = tuple(action.values())
    if isinstance(action, tuple):
        return [leaf for part in action for leaf in leaves_of(part)]
    return [action]


def test_states_are_remembered_for_as_many_episodes_as_there_are_observations() -> None:
    policy = run_of(CASES["lstm"]).policy()
    observations = np.random.default_rng(0).normal(size=(3, N, 2)).astype(np.float32)
    state = policy.initial_state(N)
    for t, batch in enumerate(observations):
        assert policy.values(batch).tolist() == policy.values(batch, state).tolist()
        policy.predict(batch)
        policy.predict(batch, state=state)
        np.testing.assert_array_equal(policy.state, state)
        policy.state[t] = state[t] = 0  # where an episode has ended
    with pytest.raises(ValueError, match=r"remembers 4 episodes, and is given 1 .* reset\(\)"):
        policy.predict(observations[0, 0])
    policy.reset()
    policy.predict(observations[0, 0])
    assert policy.state.shape == (1, 16)


def test_a_distribution_is_that_of_the_actions_within_the_mask() -> None:
    policy = run_of(CASES["masks"]).policy()
    rows = np.eye(3)[[0, 1, 2]]
    masks = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]], np.int8)
    for info in ({"action_mask": masks}, [{"action_mask": mask} for mask in masks]):
        distribution = policy.distribution(rows, info)
        probabilities = distribution.log_probs.exp()[:, 0]
        torch.testing.assert_close(probabilities.sum(1), torch.ones(3))
        assert (probabilities.numpy() > 0).tolist() == masks.astype(bool).tolist()
        for number in range(4):
            log_probs = policy.log_probs(rows, [number - 1] * 3, info)
            expected = torch.from_numpy(np.where(masks[:, number], log_probs, -np.inf))
            torch.testing.assert_close(probabilities[:, number].log(), expected)
            assert (log_probs[masks[:, number] == 0] < MASKED_LOGIT / 2).all()
    assert policy.distribution(rows[0]).mode().shape == (1, 1)


@pytest.mark.parametrize(
    ("values", "ask", "message"),
    [
        (
            "mlp",
            lambda policy: policy.predict(np.zeros(3)),
            r"observation is of shape \(3,\): give \(2,\), or \(n, 2\) for n at once",
        ),
        ("mlp", lambda policy: policy.values(np.zeros((0, 2))), r"of shape \(0, 2\): give"),
        (
            "mlp",
            lambda policy: policy.log_probs(np.zeros((2, 2)), [1]),
            "1 actions are given for 2 observations",
        ),
        ("nested", lambda policy: policy.log_probs((0, {"x": [0.5]}), 1), "action is not of Tuple"),
        ("nested", lambda policy: policy.values((0, {"y": [0.5]})), "has no 1.x: the critic reads"),
        (
            "nested",
            lambda policy: policy.values(([0, 1], {"x": [0.5]})),
            "not of one length: 0 of 2 rows, 1.x of one",
        ),
        (
            "numbers",
            lambda policy: policy.log_probs({"a": 0, "b": [0.5], "c": [0, 1]}, [0.5]),
            r"action is of shape \(1,\), not of Box",
        ),
        (
            "masks",
            lambda policy: policy.predict(np.eye(3), info=[{}]),
            "1 infos are given for 3 observations",
        ),
        (
            "lstm",
            lambda policy: policy.predict(np.zeros(2), state=np.zeros((2, 16), np.float32)),
            r"state is float32 \(2, 16\): give float32 \(1, 16\), as of initial_state\(1\)",
        ),
        (
            "cnn",
            lambda policy: policy.predict(
                {"picture": np.full((36, 36, 4), 0.5), "distance": [0.0, 0.0], "switch": 1}
            ),
            "picture is float64 with values that uint8 has not",
        ),
    ],
)
def test_what_is_of_another_shape_is_refused(values: str, ask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(run_of(CASES[values]).policy())


def test_actions_that_are_not_finite_or_no_choices_have_no_probability() -> None:
    for squash in (False, True):
        policy = run_of(identity("Box", "Box", squash_actions=squash)).policy()
        for action in ([np.nan, 0], [0, np.inf], [1e300, 0]):
            with pytest.raises(ValueError, match="row 1 of the action is not finite"):
                policy.log_probs(np.zeros((2, 2)), np.array([[0, 0], action]))
    policy = run_of(CASES["mlp"]).policy()
    for choice in (np.nan, 1.5, -1, 4):
        with pytest.raises(ValueError, match="action"):
            policy.log_probs(np.zeros(2), choice)


def test_recurrent_states_that_are_not_finite_are_refused() -> None:
    policy = run_of(CASES["lstm"]).policy()
    state = policy.initial_state(2)
    state[1, 3] = np.nan
    with pytest.raises(ValueError, match="row 1 of the recurrent state is not finite"):
        policy.predict(np.zeros((2, 2)), state=state)
    policy.predict(np.zeros(2))
    before = policy.state.copy()
    with pytest.raises(ValueError, match="the observation is not finite"):
        policy.predict([0, np.nan])
    np.testing.assert_array_equal(policy.state, before)
