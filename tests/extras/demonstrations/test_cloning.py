"""Cloning: what is fitted, to what, and that it is exact."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions

import ppo
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.envs.make import make_env, preprocess
from ppo.envs.normalize import NormalizeReward
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter
from ppo.errors import ConfigError
from ppo.extras.demonstrations.cloning import Cloning, clone, known_returns
from ppo.extras.demonstrations.format import load_demonstrations
from ppo.extras.demonstrations.recorder import Recording
from ppo.extras.demonstrations.replay import Examples, replay
from ppo.models.actor_critic import named_tensors
from ppo.peers import Peers


def make_parts(env_name: str, **values: Any) -> Components:
    """Make the parts of a run, with normalisation unless values say otherwise."""
    defaults = {"num_workers": 0, "num_envs": 2, "num_steps": 8, "num_minibatches": 2}
    return Components(settings_of(Config(**{"env_name": env_name, **defaults, **values})))


def played(parts: Components, path: Path, episodes: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Record episodes of random actions; return the observations, actions and masks that a worker
    would have written: of each row, of each step, of each row."""
    config = parts.config
    recording = Recording(path)
    env = make_env(config, 0, lambda config, env: preprocess(config, recording.wrap(env)))
    to_actions = action_converter(parts.spaces.actions, config.squash_actions)
    to_mask = mask_converter(parts.spaces.actions)
    generator = np.random.default_rng(0)
    head = parts.model.policy_head
    observations, actions, masks = [], [], []
    for episode in range(episodes):
        observation, info = env.reset(seed=episode)
        for _ in range(60):
            observations.append(np.array(observation))
            masks.append(to_mask(info.get(ACTION_MASK)))
            noise = torch.from_numpy(head.draw_noise(generator, 1))
            distribution = distribution_of_zeros(parts)
            if parts.spaces.has_masks:
                distribution = distribution.masked(torch.from_numpy(masks[-1][None]))
            actions.append(distribution.sample(noise).detach().numpy()[0])
            observation, _, terminated, truncated, info = env.step(to_actions(actions[-1][None])[0])
            if terminated or truncated:
                break
        observations.append(np.array(observation))
        masks.append(to_mask(None))
    recording.save()
    return observations, actions, masks


def distribution_of_zeros(parts: Components) -> Any:
    space = parts.spaces.observations
    zeros = torch.zeros(1, *space.shape)
    if space.dtype == np.uint8:
        zeros = zeros.byte()
    states = [torch.zeros(1, parts.model.state_size)] if parts.model.state_size else []
    return parts.model(zeros, *states)[0]


@pytest.mark.parametrize(
    ("env_name", "values"),
    [
        ("tests.environments:Counting-v0", {}),
        ("tests.environments:Camera", {}),
        ("tests.environments:Lights", {"frame_stack": 2}),
        ("tests.environments:Masked-v0", {}),
        ("tests.environments:Target-v0", {"squash_actions": True}),
        ("tests.environments:Identity", {"env_kwargs": {"shown": "Dict", "done": "Tuple"}}),
        ("CartPole-v1", {"frame_stack": 3, "frame_skip": 2}),
        ("PongNoFrameskip-v4", {"max_episode_steps": 12, "image": "color"}),
    ],
)
def test_what_is_cloned_is_what_workers_would_have_written(
    env_name: str, values: dict[str, Any], tmp_path: Path
) -> None:
    parts = make_parts(env_name, **values)
    observations, actions, masks = played(parts, tmp_path / "x.npz", 4)
    examples = replay(parts.config, parts.spaces, load_demonstrations(f"{tmp_path}/x.npz"))
    np.testing.assert_array_equal(examples.observations, observations)
    assert examples.observations.dtype == parts.spaces.observations.dtype
    assert examples.actions.dtype == parts.model.policy_head.action_dtype
    found = examples.actions[examples.is_step]
    if values.get("squash_actions"):
        np.testing.assert_allclose(found, actions, atol=1e-3)
    else:  # those beyond the bounds were clipped
        convert = action_converter(parts.spaces.actions)
        assert_equal(convert(found), convert(np.array(actions, found.dtype)))
    assert not examples.actions[~examples.is_step].any()
    assert (examples.action_masks is not None) == parts.spaces.has_masks
    if examples.action_masks is not None:
        np.testing.assert_array_equal(examples.action_masks, masks)
    assert (~examples.is_step).sum() == 4


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        one, other = [*one.values()], [*other.values()]
    if isinstance(one, (list, tuple)):
        for part, own in zip(one, other, strict=True):
            assert_equal(part, own)
    else:
        np.testing.assert_array_equal(one, other)


def examples_of(parts: Components, lengths: tuple[int, ...], seed: int = 0) -> Examples:
    """Random episodes of these lengths; every second one was cut off."""
    generator = np.random.default_rng(seed)
    head = parts.model.policy_head
    is_step = np.ones(sum(lengths) + len(lengths), np.bool_)
    is_step[np.cumsum(lengths) + np.arange(len(lengths))] = False
    num_rows = len(is_step)
    shape = (num_rows, *parts.spaces.observations.shape)
    observations = generator.normal(size=shape).astype(np.float32)
    masks = None
    if head.action_dtype is np.int64:
        space: Any = parts.spaces.actions
        actions = generator.integers(0, space.n, (num_rows, 1))
        if parts.spaces.has_masks:
            masks = generator.random((num_rows, head.mask_size)) < 0.5
            masks[np.arange(num_rows), actions[:, 0]] = True
    else:
        actions = generator.normal(size=(num_rows, head.action_size)).astype(np.float32)
    actions[~is_step] = 0
    if masks is not None:
        masks[~is_step] = True
    rewards = np.where(is_step, generator.normal(size=num_rows), 0)
    return Examples(
        observations=observations,
        actions=actions,
        action_masks=masks,
        rewards=rewards,
        is_step=is_step,
        was_cut=np.arange(len(lengths)) % 2 == 1,
        episodes=np.repeat(np.arange(len(lengths)), np.add(lengths, 1)),
    )


KINDS: dict[str, dict[str, Any]] = {
    "discrete": {"env_name": "CartPole-v1"},
    "masked": {"env_name": "tests.environments:Masked-v0"},
    "continuous": {"env_name": "Pendulum-v1", "log_std_init": -0.5},
    "squashed": {"env_name": "Pendulum-v1", "squash_actions": True},
    "shared": {"env_name": "CartPole-v1", "share_trunk": True},
    "lstm": {"env_name": "CartPole-v1", "model": "lstm"},
    "gru": {"env_name": "Pendulum-v1", "model": "gru"},
}


def make_cloning(kind: str, lengths: tuple[int, ...], **values: Any) -> Cloning:
    defaults = {"hidden_size": 8, "normalize_observations": False, "seed": 1}
    parts = make_parts(**{**defaults, **KINDS.get(kind, {}), **values})
    with torch.no_grad():  # the initial logits are nearly equal
        parts.learner.weights.mul_(3)
    return Cloning(parts, examples_of(parts, lengths))


def loss_by_definition(cloning: Cloning, rows: np.ndarray, returns: np.ndarray) -> Any:
    """The loss, step by step as the policy acts, by torch's own distributions."""
    model = cloning.model
    tables = cloning.tables
    total: Any = 0.0
    for row in rows:
        observation = tables["observations"][row : row + 1]
        if tables["starts"][row] and model.state_size:
            states = torch.zeros(1, model.state_size)
        if model.state_size:
            outputs, states = model.policy_trunk.step(observation, states)
            distribution, values = model.heads(outputs, outputs)
        else:
            distribution, values = model(observation)
        if not tables["is_step"][row]:
            continue
        action = tables["actions"][row]
        if hasattr(distribution, "logits"):
            logits = distribution.logits[0, 0]
            if "masks" in tables:
                logits = torch.where(tables["masks"][row], logits, torch.tensor(-torch.inf))
            log_prob = distributions.Categorical(logits=logits).log_prob(action[0])
        else:
            gaussian = getattr(distribution, "gaussian", distribution)
            normal = distributions.Normal(gaussian.mean[0], gaussian.log_std.exp())
            if gaussian is not distribution:
                normal = distributions.TransformedDistribution(
                    normal, [distributions.transforms.TanhTransform()]
                )
                action = action.double().tanh()
            log_prob = normal.log_prob(action).sum()
        error = values[0] - returns[row]
        total = total - log_prob + cloning.config.value_coef * 0.5 * error**2
    return total / tables["is_step"][torch.from_numpy(rows)].sum()


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_definition(kind: str) -> None:
    cloning = make_cloning(kind, (4, 3, 2, 5))
    returns = cloning.returns_now()
    (rows, *_) = cloning.minibatches(cloning.learned, 8)
    cloning.compute_gradients(rows, returns)
    found = cloning.learner.gradients.clone()
    cloning.learner.gradients.zero_()
    loss_by_definition(cloning, rows, returns).backward()
    wanted = cloning.learner.gradients
    if cloning.held is not None:
        assert wanted[cloning.held].abs().min() > 0
        wanted[cloning.held] = 0
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
    assert found.abs().max() > 0.01


def test_frozen_weights_and_the_deviation_stay() -> None:
    cloning = make_cloning("continuous", (40, 30, 20), freeze="policy_head")
    before = {name: x.clone() for name, x in named_tensors(cloning.model).items()}
    cloning.run(3)
    for name, tensor in named_tensors(cloning.model).items():
        is_same = torch.equal(tensor, before[name])
        assert is_same == name.startswith("policy_head"), name


def test_the_deviation_becomes_that_of_the_held_out_actions() -> None:
    kwargs = {"shown": "Discrete", "done": "Arms"}
    name = "tests.environments:Identity-v0"
    cloning = make_cloning("", (2000,) * 3, env_name=name, env_kwargs=kwargs)
    cloning.tables["actions"].zero_()
    spread = torch.tensor([5.0, 1e-3, 0, math.exp(-0.5)])  # above the initial, below the lowest
    for rows, factor in ((cloning.held_out, 1), (cloning.learned, 100)):
        noise = torch.randn(len(rows), 4, generator=torch.Generator().manual_seed(1))
        cloning.tables["actions"][rows] = cloning.predict(rows)[1] + noise * spread * factor
    before = float(cloning.predict(cloning.held_out)[0].mean())
    cloning.fit_deviation()
    found = [x for name, x in cloning.model.named_parameters() if name.endswith("log_std")]
    for own, log_std in zip(found, ([0.0, -2.0], [-0.5]), strict=True):
        np.testing.assert_allclose(own.detach(), log_std, atol=0.05)
    assert float(cloning.predict(cloning.held_out)[0].mean()) <= before


def test_returns_are_those_of_the_definition() -> None:
    gamma = 0.9
    rewards = [1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 0.0]
    is_step = np.array([True, True, True, False, True, True, False])
    was_cut = np.array([False, True])
    returns, discounts = known_returns(np.array(rewards), is_step, was_cut, gamma)
    wanted = [1 + 0.9 * (2 + 0.9 * 3), 2 + 0.9 * 3, 3, 0, 4 + 0.9 * 5, 5, 0]
    np.testing.assert_allclose(returns, wanted)
    np.testing.assert_allclose(discounts, [0, 0, 0, 0, 0.81, 0.9, 1])


def test_an_episode_that_was_cut_off_is_worth_what_follows() -> None:
    cloning = make_cloning("lstm", (4, 3, 2))
    returns = cloning.returns_now()
    model = cloning.model
    states = torch.zeros(1, model.state_size)
    for row in range(5, 9):  # of the second episode
        observation = cloning.tables["observations"][row : row + 1]
        outputs, states = model.policy_trunk.step(observation, states)
        value = model.heads(outputs, outputs)[1].item()
    assert returns[7] == pytest.approx(cloning.returns[7] + 0.99 * value, rel=1e-4)
    assert returns[5] == pytest.approx(cloning.returns[5] + 0.99**3 * value, rel=1e-4)
    np.testing.assert_array_equal(returns[:4], cloning.returns[:4])


def test_rewards_are_scaled_as_in_training() -> None:
    parts = make_parts("CartPole-v1", gamma=0.9)
    examples = examples_of(parts, (40, 30, 20))
    cloning = Cloning(parts, examples)
    assert examples.rewards is not None
    table = np.zeros((40, 3), np.float32)
    dones = np.zeros((40, 3), np.bool_)
    start = 0
    for column, length in enumerate((40, 30, 20)):
        table[:length, column] = examples.rewards[start : start + length]
        dones[length - 1, column] = True
        start += length + 1
    present = np.arange(40)[:, None] < [40, 30, 20]
    own = NormalizeReward(3, 0.9, True)
    scaled = own.update_and_scale(table, dones, Peers().gather, present)
    found = parts.normalize_reward.statistics
    assert found.count == own.statistics.count
    assert found.variance == pytest.approx(float(own.statistics.variance), rel=1e-6)
    first = sum(0.9**t * float(scaled[t, 0]) for t in range(40))
    assert cloning.returns[0] == pytest.approx(first, rel=1e-5)


def test_statistics_of_observations_are_those_of_the_demonstrations() -> None:
    parts = make_parts("CartPole-v1")
    examples = examples_of(parts, (40, 30, 20))
    cloning = Cloning(parts, examples)
    seen = examples.observations[examples.is_step]
    statistics = parts.normalize_observation.statistics
    np.testing.assert_allclose(statistics.mean, seen.mean(0), atol=1e-5)
    np.testing.assert_allclose(statistics.variance, seen.var(0), rtol=1e-4)
    wanted = (examples.observations - seen.mean(0)) / seen.std(0)
    np.testing.assert_allclose(cloning.tables["observations"], wanted, atol=1e-3)
    before = parts.normalize_observation(seen)
    for _ in range(100):  # as training adds its own
        parts.normalize_observation.update(np.full((1000, 4), 50, np.float32), Peers().gather)
    np.testing.assert_allclose(parts.normalize_observation(seen), before, atol=1e-5)


def test_what_was_always_the_same_is_only_shifted() -> None:
    parts = make_parts("CartPole-v1")
    examples = examples_of(parts, (40, 30, 20))
    examples.observations[:, 2] = 0.25
    cloning = Cloning(parts, examples)
    np.testing.assert_allclose(cloning.tables["observations"][:, 2], 0, atol=1e-6)
    seen = examples.observations[:1].copy()
    seen[:, 2] = 1.5
    assert parts.normalize_observation(seen)[0, 2] == pytest.approx(1.25, rel=1e-5)


def test_a_tenth_of_the_episodes_is_held_out() -> None:
    for num_episodes, wanted in ((1, 0), (2, 1), (9, 1), (25, 2)):
        cloning = make_cloning("discrete", (3,) * num_episodes)
        assert len(cloning.held_out) == 3 * wanted
        assert len(cloning.held_out) + len(cloning.learned) == 3 * num_episodes
        held_out = {*cloning.episodes[cloning.held_out]}
        assert not held_out & {*cloning.episodes[cloning.learned]}
        where = "held out" if wanted else "only episode"
        assert where in cloning.describe_score()


def test_every_example_is_used_once_in_an_epoch() -> None:
    cloning = make_cloning("lstm", (30, 70, 1, 1, 90, 5))
    minibatches = cloning.minibatches(cloning.learned, 64, np.random.default_rng(0))
    rows = np.concatenate(minibatches)
    is_step = cloning.tables["is_step"].numpy()
    assert sorted(rows[is_step[rows]]) == cloning.learned.tolist()
    for part in minibatches:  # whole episodes
        assert cloning.tables["starts"][part[0]]
        assert not is_step[part[-1]]


def test_without_rewards_values_stay(tmp_path: Path) -> None:
    parts = make_parts("CartPole-v1")
    examples = examples_of(parts, (40, 30))
    cloning = Cloning(parts, Examples(**{**vars(examples), "rewards": None}))
    value = parts.model.value_head.weight.clone()
    cloning.run(2)
    assert torch.equal(parts.model.value_head.weight, value)
    assert float(parts.normalize_reward.statistics.count) < 1


@pytest.mark.parametrize("part", ["observations", "actions"])
def test_what_makes_the_loss_infinite_is_named(part: str) -> None:
    cloning = make_cloning("continuous", (40, 30), demonstrations="x.npz")
    cloning.tables[part][:] = torch.inf
    words = rf"--demonstrations=x\.npz .*not finite in epoch 1: its {part} are as large as inf"
    with pytest.raises(ConfigError, match=words):
        cloning.run(1)


def test_rewards_that_are_too_large_to_learn_values_from_are_named(tmp_path: Path) -> None:
    steps = np.arange(6)
    path = tmp_path / "large.npz"
    np.savez(
        path,
        observations=np.zeros((7, 4), np.float32),
        actions=steps % 2,
        rewards=1e20 * steps,
        terminations=steps == 5,
        truncations=np.zeros(6, np.bool_),
    )
    flags = {"demonstrations": str(path), "normalize_rewards": False}
    with pytest.raises(ConfigError, match=r"large\.npz .*sums of its rewards are as large as 1\.4"):
        clone(make_parts("CartPole-v1", **flags))


def test_cloning_leaves_no_trace_but_its_result(tmp_path: Path) -> None:
    """Optimizer, random streams and counts of the run are those of one without it."""
    path = tmp_path / "x.npz"
    parts = make_parts("CartPole-v1")
    played(parts, path, 5)
    plain = make_parts("CartPole-v1")
    cloned = make_parts("CartPole-v1", demonstrations=str(path), clone_epochs=2)
    note = clone(cloned)
    assert "cloned 5 episodes" in note
    one, other = plain.state_dict(), cloned.state_dict()
    assert one.keys() == other.keys()
    different = {name for name in one if not np.array_equal(one[name], other[name])}
    assert {name.partition(".")[0] for name in different} == {
        "model",
        "normalize_observation",
        "normalize_reward",
    }
    assert not cloned.learner.gradients.any()
    weights = cloned.learner.weights.numpy()
    np.testing.assert_array_equal(cloned.buffers.behaviour_weights, weights)


def test_an_image_is_cloned(tmp_path: Path) -> None:
    """The lighter half of a picture, which a scripted expert finds."""
    path = tmp_path / "pictures.npz"

    def expert(picture: np.ndarray) -> int:
        return int(picture[:, 24:].mean() > picture[:, :24].mean())

    ppo.record(expert, "tests.environments:Picture-v0", 300, path)
    parts = make_parts(
        "tests.environments:Picture-v0", demonstrations=str(path), screen_size=36, clone_epochs=6
    )
    clone(parts)
    assert parts.policy().evaluate(40).mean == 1
