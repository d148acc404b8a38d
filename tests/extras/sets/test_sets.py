"""Networks on sets of entities, and sequences that are padded to sets."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from examples.entities import Forage
from ppo import load_policy, train
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.envs.make import make_env, preprocess
from ppo.errors import ConfigError
from ppo.extras.sets.flags import standardized
from ppo.extras.sets.model import SetTrunk
from ppo.extras.sets.padding import PadSequences
from ppo.models import make_model
from ppo.models.errors import ModelMismatch
from ppo.policy.factories import normalized_parts
from tests.running import run_main
from tests.shown import Samples

FORAGE = "examples.entities:Forage"
SMALL = {"preset": "none", "num_envs": 2, "num_steps": 32, "total_steps": 128, "verbose": 0}


def model_of(env_name: str) -> tuple[Any, Any]:
    """Return a model of sets, and a function from observations as they are shown to its inputs."""
    torch.manual_seed(0)
    settings = settings_of({"env_name": env_name, "model": "set", **SMALL})
    env = make_env(settings.config, 0)
    model = make_model(settings.config, env.observation_space, env.action_space)
    return model.eval(), env.unwrapped


def outputs(model: Any, observation: dict[str, Any]) -> torch.Tensor:
    parts = {name: torch.as_tensor(part)[None] for name, part in observation.items()}
    distribution, values = model(parts)
    return torch.cat([distribution.mode().flatten(), values]).detach()


def test_neither_order_nor_padding_matters_and_each_entity_does() -> None:
    model, env = model_of(FORAGE)
    observation, _ = env.reset(seed=1)
    count = int(observation["mask"].sum())
    assert 2 < count < 12
    wanted = outputs(model, observation)
    order = np.random.default_rng(0).permutation(12)
    shuffled = {**observation, **{x: observation[x][order] for x in ("entities", "mask")}}
    torch.testing.assert_close(outputs(model, shuffled), wanted)
    padded = {**observation, "entities": observation["entities"].copy()}
    padded["entities"][count:] = 9
    torch.testing.assert_close(outputs(model, padded), wanted)
    moved = {**observation, "entities": observation["entities"].copy()}
    moved["entities"][0, 0] += 1
    assert not torch.allclose(outputs(model, moved), wanted, atol=1e-4)


def test_a_set_without_entities_has_features_that_are_finite() -> None:
    model, env = model_of(FORAGE)
    observation, _ = env.reset(seed=1)
    empty = {**observation, "mask": np.zeros(12, np.int8)}
    assert outputs(model, empty).isfinite().all()


def test_it_trains_acts_and_leaves_sets_as_they_are(tmp_path: Any) -> None:
    summary = train(FORAGE, model="set", run_dir=str(tmp_path / "run"), **SMALL)
    policy = load_policy(summary.checkpoint, FORAGE)
    observation, _ = Forage().reset(seed=3)
    order = np.argsort(-observation["mask"])[::-1]
    shuffled = {**observation, **{x: observation[x][order] for x in ("entities", "mask")}}
    np.testing.assert_allclose(policy.predict(shuffled), policy.predict(observation), atol=1e-5)


def test_observations_without_a_set_are_refused(tmp_path: Any) -> None:
    done = run_main("--env_name=CartPole-v1", "--model=set", f"--run_dir={tmp_path / 'run'}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: --model=set reads sets of entities")
    with pytest.raises((ConfigError, ModelMismatch), match="give another model"):
        train(FORAGE, model="set", set_keys="position", run_dir=str(tmp_path / "other"), **SMALL)


BOX = spaces.Box(-1, 1, (12, 3))


def trunk_of(space: spaces.Dict, **values: Any) -> Any:
    config = settings_of({"env_name": FORAGE, "model": "set", "preset": "none", **values}).config
    shown: Any = preprocess(config, Samples(space)).observation_space
    return SetTrunk(shown, config, values.get("hidden_size", 64))


@pytest.mark.parametrize(
    ("parts", "values", "said"),
    [
        ({"entities": BOX, "mask": spaces.MultiBinary(10)}, {}, "mask is .*entities_mask=Mult"),
        ({"entities": BOX, "mask": spaces.Discrete(12)}, {}, "mask is Discrete.*12 entities"),
        ({"entities": BOX, "entities_mask": spaces.MultiBinary(1)}, {}, "entities_mask is Multi"),
        ({"entities": spaces.MultiDiscrete([[3, 3], [3, 3]])}, {}, "reads sets of entities"),
        ({"entities": BOX}, {"hidden_size": 30}, "a multiple of 4 units, not 30"),
    ],
)
def test_what_is_no_set_or_no_mask_is_named(parts: Any, values: Any, said: str) -> None:
    with pytest.raises(ModelMismatch, match=said):
        trunk_of(spaces.Dict(parts), **values)


def test_each_set_has_the_mask_that_is_nearest() -> None:
    arm = spaces.Dict(entities=BOX, mask=spaces.MultiBinary(12), joints=spaces.Box(-1, 1, (2,)))
    space = spaces.Dict(arm=arm, walls=BOX, mask=spaces.MultiBinary(12), floor=BOX)
    trunk = trunk_of(space, set_keys="arm.entities,walls")
    assert trunk.masks == {"arm.entities": "arm.mask", "walls": "mask"}
    assert {*trunk.others} == {"arm.joints", "floor"}
    config = Config(model="set", set_keys="arm.entities,walls")
    assert standardized(config, [*trunk.sets, *trunk.masks.values(), *trunk.others]) == trunk.others


class Swarm(gymnasium.Env):
    """Observe a sequence of vectors, whose number changes."""

    observation_space = spaces.Dict(
        {"birds": spaces.Sequence(spaces.Box(-1, 1, (3,))), "wind": spaces.Box(-1, 1, (2,))}
    )
    action_space = spaces.Discrete(2)
    count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.step(0)[0], {}

    def step(self, action: int) -> Any:
        self.count = (self.count + 1) % 4
        birds = tuple(np.full(3, 0.5, np.float32) for _ in range(self.count))
        wind = np.zeros(2, np.float32)
        return {"birds": birds, "wind": wind}, 1.0, self.count == 0, False, {}


def test_sequences_are_padded_and_masked() -> None:
    env = PadSequences(Swarm(), size=4)
    observation, _ = env.reset()
    assert env.observation_space.contains(observation)
    assert observation["birds"].tolist() == [[0.5] * 3, *[[0.0] * 3] * 3]
    assert observation["birds_mask"].tolist() == [1, 0, 0, 0]
    with pytest.raises(ValueError, match="3 entities, more than the 2 of PadSequences"):
        PadSequences(Swarm(), size=2).observation({"birds": [[0.0] * 3] * 3})
    birds = Swarm.observation_space["birds"]
    for space, said in (
        (Forage.observation_space, "found no Sequence"),
        (spaces.Dict(x=spaces.Sequence(spaces.Box(-1, 1, (3, 2)))), "found no Sequence"),
        (spaces.Dict(birds=birds, birds_mask=spaces.MultiBinary(2)), "makes birds_mask, and"),
    ):
        with pytest.raises(ValueError, match=said):
            PadSequences(Samples(space), size=2)
    uneven = spaces.Box(np.array([-1, 2], np.float32), np.array([1, 5], np.float32))
    padded = PadSequences(Samples(spaces.Dict(x=spaces.Sequence(uneven))), size=2)
    assert padded.observation_space["x"].low.tolist() == [[-1, 0]] * 2
    assert padded.observation_space["x"].high.tolist() == [[1, 5]] * 2


def test_sequences_are_trained_on_by_a_wrapper(tmp_path: Any) -> None:
    flags = {"wrapper": "ppo.extras.sets.padding:PadSequences(size=4)", "set_keys": "birds"}
    summary = train(Swarm, model="set", run_dir=str(tmp_path / "run"), **flags, **SMALL)
    assert summary.steps == 128


def test_other_networks_standardise_all_parts() -> None:
    for model, wanted in (("mlp", True), ("set", False)):
        config = settings_of(Config(env_name=FORAGE, model=model, preset="none")).config
        names = normalized_parts(config, make_env(config, 0).observation_space)
        assert ("entities" in names) is wanted
        assert "position" in names
