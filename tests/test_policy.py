"""A trained policy: what it answers, how it plays, and that it is loaded without its world."""

import json
import sys
from hashlib import sha256
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, MultiBinary
from gymnasium.wrappers import OrderEnforcing

import ppo.policy
from ppo import Callback, load_policy
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import CheckpointError, ConfigError
from ppo.extras.export import random_inputs
from ppo.state import take
from tests.running import ROOT, VECTOR, disturb, iterate, running, train
from tests.test_observations import showing
from tests.worlds import Constant, Counting, Masked, Numbers

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "mlp": (Counting, {"normalize_observations": True}),
    "numbers": (Numbers, {"use_sde": True}),
    "masks": (Masked, {}),
    "stack": ("CartPole-v1", {"frame_stack": 3}),
    "lstm": ("CartPole-v1", {"model": "lstm"}),
}


@pytest.mark.parametrize("kind", ["mlp", "numbers"])
def test_log_probs_and_values_are_those_that_the_learner_computes(kind, tmp_path):
    env, flags = KINDS[kind]
    with running(env, tmp_path, **flags) as run:
        iterate(run)
        disturb(run.model)
        run.publish()
        rollout = run.collect()
        batch = run.make_batch(rollout)
        policy = run.policy()
        observations = [*rollout.observations[:-1].reshape(64, -1)]
        found = policy.log_probs(observations, rollout.actions.reshape(64, -1))
        np.testing.assert_allclose(found, batch["log_probs"], atol=1e-4)
        np.testing.assert_allclose(policy.values(observations), batch["values"], atol=1e-4)
        assert np.std(found) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_acts_as_in_rollouts_and_n_observations_are_answered_as_one_by_one(kind, tmp_path):
    """The most likely actions, in a replay of the first episodes of a rollout."""
    env, flags = KINDS[kind]
    with running(env, tmp_path, **flags) as run:
        disturb(run.model)
        policies = [run.policy() for _ in range(4)]
        envs = [policies[0].make_env() for _ in range(3)]
        firsts = [each.reset(seed=seed) for seed, each in enumerate(envs)]
        seen, infos = ([x[i] for x in firsts] for i in (0, 1))
        for _ in range(3):
            actions = policies[3].predict_batch(seen, infos=infos)
            for i in range(3):
                assert envs[i].action_space.contains(actions[i])
                one = policies[i].predict(seen[i], info=infos[i])
                np.testing.assert_allclose(one, actions[i], atol=1e-5)
                seen[i], *_, infos[i] = envs[i].step(actions[i])
        policies[0].reset()
        again = policies[0].predict(firsts[0][0], info=firsts[0][1])
        fresh = run.policy().predict(firsts[0][0], info=firsts[0][1])
        np.testing.assert_array_equal(again, fresh)


@pytest.mark.parametrize("num_envs", [1, 3, 8])
def test_each_seed_is_played_once_whatever_the_number_of_environments(num_envs, tmp_path):
    """An episode of Counting lasts 3 + seed % 7 steps, and each step earns the action."""
    with running(Counting, tmp_path) as run:
        result = run.policy().evaluate(7, num_envs=num_envs, seed=5)
        seeds = [integer_seed(5, Stream.EVALUATION, x) % 2**16 for x in range(7)]
        assert result.lengths == [3 + seed % 7 for seed in seeds]
        assert result.returns == run.policy().evaluate(7, num_envs=2, seed=5).returns
        assert result.mean == pytest.approx(np.mean(result.returns))
        assert result.std == pytest.approx(np.std(result.returns))
        other = run.policy().evaluate(7, stochastic=True, seed=5)
        assert other.lengths == result.lengths
        assert other.returns != result.returns


def test_an_evaluation_changes_nothing_and_repeats_itself(tmp_path):
    with running(Counting, tmp_path, normalize_observations=True, eval_episodes=3) as run:
        iterate(run)
        before = take(run)
        assert run.evaluate() == run.evaluate()
        for name, value in take(run).items():
            np.testing.assert_equal(value, before[name], name)


def test_an_episode_that_does_not_end_is_cut_off(tmp_path, monkeypatch):
    class Endless(Constant):
        def step(self, action: Any) -> Any:
            return np.ones(1, np.float32), 1.0, False, False, {}

    monkeypatch.setattr(ppo.policy, "MAX_STEPS", 20)
    with running(Endless, tmp_path) as run:
        result = run.policy().evaluate(3)
    assert result.lengths == [20] * 3
    assert result.returns == [20] * 3


@pytest.mark.parametrize("name", ["leaving:World", "Leaving-v0"])
def test_a_policy_is_loaded_without_its_environment(name, tmp_path, monkeypatch):
    """As on a robot. Only to play it needs one."""
    code = "import gymnasium\nfrom tests.worlds import Counting\nclass World(Counting): pass\n"
    code += "gymnasium.register('Leaving-v0', World)\n"
    (tmp_path / "leaving.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    __import__("leaving")
    with running(name, tmp_path / "run") as run:
        run.policy().save(tmp_path / "file.safetensors")
        expected = run.policy().predict(np.array([5.0, 1]))
    (tmp_path / "leaving.py").unlink()
    del sys.modules["leaving"], gymnasium.registry["Leaving-v0"]
    policy = load_policy(tmp_path / "file.safetensors")
    assert policy.predict(np.array([5.0, 1])) == expected
    with pytest.raises((CheckpointError, ConfigError)):
        policy.evaluate(1)
    assert load_policy(tmp_path / "file.safetensors", Counting).evaluate(2).lengths


@pytest.mark.parametrize("kind", ["mlp", "lstm", "stack"])
def test_an_observation_that_is_not_finite_is_refused(kind, tmp_path):
    """As of a broken sensor: the most likely of choices that are NaN is the first. What is
    remembered stays."""
    env, flags = KINDS[kind]
    with running(env, tmp_path, **flags) as run:
        policy, fresh = run.policy(), run.policy()
        first = policy.make_env().reset(seed=0)[0]
        broken = np.where(np.arange(len(first)) == 1, np.nan, first)
        for ask in (policy.values, policy.predict_batch, lambda x: policy.predict(x[0])):
            with pytest.raises(ValueError, match="non-finite observations"):
                ask([broken])
        if kind != "stack":
            np.testing.assert_array_equal(policy.states, np.zeros_like(policy.states))
        policy.reset()
        assert policy.predict(first) == fresh.predict(first)


@pytest.mark.parametrize("path", sorted(ROOT.glob("policies/*.safetensors")), ids=lambda x: x.stem)
def test_a_pretrained_policy_is_that_of_its_card_and_acts(path):
    card = json.loads((path.parent / "policies.json").read_text())[path.stem]
    assert sha256(path.read_bytes()).hexdigest() == card["sha256"]
    policy = load_policy(path)
    action = policy.predict(policy.spaces.observations.sample())
    assert policy.spaces.actions.contains(action)


class Wider(Callback):
    """Adds a layer to the policy's trunk."""

    def on_model(self, model: Any, spaces: Any) -> None:
        size = model.policy_trunk.num_features
        model.policy_trunk.layers.append(torch.nn.Linear(size, size))


def test_a_network_changed_by_a_callback_is_loaded_with_it(tmp_path):
    train(Counting, tmp_path, 1, [Wider()])
    policy = load_policy(tmp_path, callbacks=[Wider()])
    names = [name for name in policy.state if name.startswith("model.policy_trunk")]
    assert len(names) == 2 * 3
    assert policy.predict(np.zeros(2)) is not None
    with pytest.raises(CheckpointError, match=r"differs .* in model\.policy"):
        load_policy(tmp_path)


class ByMethod(Masked):
    """Has masks as SB3-Contrib reads them."""

    def allow(self) -> Any:
        return {} if super().allow() else None

    def action_masks(self) -> Any:
        return self.allowed


class InPart(Masked):
    """Has masks as PettingZoo and RLlib have them."""

    observation_space: Any = Dict(observation=Box(0, 9, (1,)), action_mask=MultiBinary(4))

    def reset(self, **options: Any) -> Any:
        return {"observation": super().reset(**options)[0], "action_mask": self.allowed}, {}

    def step(self, action: Any) -> Any:
        shown, *others, _ = super().step(action)
        return {"observation": shown, "action_mask": self.allowed}, *others, {}


@pytest.mark.parametrize("env", [ByMethod, InPart, lambda: OrderEnforcing(ByMethod())])
def test_masks_of_other_conventions_are_applied_and_not_observed(env, tmp_path, capfd):
    train(env, tmp_path, 2, eval_episodes=3, logger="console")
    assert "masks are applied" in capfd.readouterr().out
    policy = load_policy(tmp_path, env)
    for made in (env(), policy.make_env()):
        observation, info = made.reset(seed=5)
        for _ in range(7):
            if env is not InPart:
                info = {"action_mask": made.get_wrapper_attr("action_masks")()}
            observation, *_, info = made.step(policy.predict(observation, info=info))
    shapes = {name: x.shape for name, x in random_inputs(policy, 2).items()}
    assert shapes == {"observations": (2, 1), "action_mask": (2, 4)}  # of an exported policy


def test_a_part_of_that_name_is_observed_if_it_is_no_mask(tmp_path):
    env = showing(Dict(observation=VECTOR, action_mask=MultiBinary(3)))
    train(env, tmp_path, 1)
    policy = load_policy(tmp_path, env)
    assert policy.evaluate(1).returns
    assert not policy.spaces.has_masks
    assert policy.spaces.layout.tables["observations"].shape == (3 + 3,)


class Guess(Constant):
    """Pays at the end if both actions have been taken."""

    def step(self, action: Any) -> Any:
        self.chosen = {action, *(self.chosen if self.steps else [])}
        shown, _, *ended, info = super().step(action)
        return shown, float(self.steps == 10 and len(self.chosen) == 2), *ended, info


def test_a_policy_plays_in_the_environment_of_evaluations_unless_another_is_given(tmp_path):
    train(Constant, tmp_path, 1, eval_env=Guess)
    for given, played in ((None, Guess), (Constant, Constant)):
        assert type(load_policy(tmp_path, given).make_env().unwrapped) is played
