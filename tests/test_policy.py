"""The programming interface: to train, to change what is learned, and to use what was learned."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import main
import ppo
from ppo import Config, Learner, Policy, load_policy, train
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import CheckpointError
from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import policy_head
from ppo.run import checkpoint
from tests.environments import SPACES
from tests.running import metrics

CARTPOLE = {
    **{
        "env_name": "CartPole-v1",
        "num_envs": 4,
        "num_steps": 64,
        "total_steps": 2048,
        "num_workers": 0,
    },
    **{"eval_episodes": 6, "verbose": 0, "report": False, "learning_rate": 1e-3},
}
TINY = {
    **CARTPOLE,
    "num_envs": 2,
    "num_steps": 8,
    "eval_episodes": 0,
    "num_minibatches": 1,
    "num_epochs": 1,
}
OBSERVATIONS = np.random.default_rng(0).normal(0, [1, 1, 0.1, 1], (200, 4)).astype(np.float32)


def iterations(count: int, **values: Any) -> dict[str, Any]:
    """Values of a run of as many tiny iterations."""
    sizes = {**TINY, **values}
    return {**sizes, "total_steps": count * sizes["num_envs"] * sizes["num_steps"]}


@pytest.fixture(scope="module", params=["mlp", "lstm"])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The summary of a short run."""
    folder = tmp_path_factory.mktemp(request.param)
    return train(
        Config(
            **{
                **CARTPOLE,
                "model": request.param,
                "num_minibatches": 2,
                "run_dir": str(folder / "run"),
            }
        )
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of an MLP."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    return Path(
        train(Config(**iterations(4, run_dir=str(folder), num_epochs=4, learning_rate=3e-3)))[
            "checkpoint"
        ]
    )


def test_what_is_loaded_plays_as_what_was_trained(trained: dict[str, Any]) -> None:
    evaluation = trained["evaluation"]
    assert len(set(evaluation["returns"])) > 1
    assert load_policy(trained["checkpoint"]).evaluate(6, num_envs=4) == evaluation
    assert (
        load_policy(Path(trained["checkpoint"])).evaluate(4, num_envs=3)["returns"]
        == evaluation["returns"][:4]
    )
    assert (
        load_policy(trained["checkpoint"]).evaluate(6, deterministic=False)["returns"]
        != evaluation["returns"]
    )


def test_predictions_play_the_episodes_of_the_evaluation(trained: dict[str, Any]) -> None:
    policy = load_policy(trained["checkpoint"])
    assert isinstance(policy, Policy)
    env, returns = policy.make_env(), []
    for episode in range(6):
        policy.reset()
        observation, info = env.reset(seed=integer_seed(0, Stream.EVALUATION, episode))
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, info = env.step(
                policy.predict(observation, info=info)
            )
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    assert returns == trained["evaluation"]["returns"]


def probabilities(path: Path, observations: np.ndarray) -> np.ndarray:
    """Of the actions (n, 2), by the arrays in a checkpoint alone."""
    tensors = {name: tensor.double().numpy() for name, tensor in checkpoint.load(path)[0].items()}
    mean, variance = (tensors[f"normalize_observation.{name}"] for name in ("mean", "variance"))
    features = np.clip((observations - mean) / np.sqrt(variance + 1e-8), -10, 10)
    for layer in range(2):
        weight, bias = (
            tensors[f"model.policy_trunk.layers.{layer}.{name}"] for name in ("weight", "bias")
        )
        features = np.tanh(features @ weight.T + bias)
    logits = (
        features @ tensors["model.policy_head.logits.weight"].T
        + tensors["model.policy_head.logits.bias"]
    )
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def test_the_most_likely_action_is_predicted(saved: Path) -> None:
    policy, likely = load_policy(saved), probabilities(saved, OBSERVATIONS).argmax(1)
    assert [policy.predict(observation) for observation in OBSERVATIONS] == likely.tolist()
    assert 20 < likely.sum() < 180


def test_random_predictions_have_the_probabilities_of_the_policy(saved: Path) -> None:
    policy, expected = load_policy(saved), probabilities(saved, OBSERVATIONS)[:, 1]
    chosen = np.abs(expected - 0.25).argmin()
    observation, probability = OBSERVATIONS[chosen], expected[chosen]
    assert 0.1 < probability < 0.4
    count = sum(policy.predict(observation, deterministic=False) for _ in range(2000))
    assert abs(count - 2000 * probability) < 4 * math.sqrt(2000 * probability * (1 - probability))


@pytest.mark.parametrize(
    ("shown", "done", "values"),
    [
        *(("Box", done, {}) for done in SPACES),
        *((shown, "Discrete", {}) for shown in ("Dict", "Tuple", "Grid")),
        ("Discrete", "Box", {"use_sde": True, "squash_actions": True}),
    ],
)
def test_predictions_are_actions_of_the_environment(
    shown: str, done: str, values: dict[str, Any], tmp_path: Path
) -> None:
    world = {
        "env_name": "tests.environments:Identity-v0",
        "env_kwargs": {"shown": shown, "done": done},
    }
    summary = train(Config(**{**iterations(1), **world, **values, "run_dir": str(tmp_path)}))
    policy = load_policy(summary["checkpoint"], env_name=world["env_name"])
    env = policy.make_env()
    observation, _ = env.reset(seed=0)
    for deterministic in (True, False):
        for _ in range(5):
            action = policy.predict(observation, deterministic)
            assert SPACES[done].contains(action)
            observation = env.step(action)[0]


def test_a_policy_that_remembers_can_forget(tmp_path: Path) -> None:
    policy = load_policy(
        train(Config(**iterations(2, model="lstm", run_dir=str(tmp_path))))["checkpoint"]
    )

    def remembered() -> list[bytes]:
        result = []
        for observation in OBSERVATIONS[:5]:
            policy.predict(observation)
            result.append(policy.state.tobytes())
        return result

    first, second = remembered(), remembered()
    policy.reset()
    assert not policy.state.any()
    assert remembered() == first
    assert all(a != b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("env_name", "values"),
    [
        ("CartPole-v1", {"share_trunk": True}),
        (
            "Pendulum-v1",
            {"use_sde": True, "squash_actions": True, "num_layers": 1, "activation": "relu"},
        ),
        ("tests.environments:Picture-v0", {"model": "cnn_small", "screen_size": 36}),
        (
            "tests.environments:Camera",
            {"model": "impala", "screen_size": 20, "frame_stack": 2, "share_trunk": False},
        ),
        (
            "tests.environments:Camera",
            {"model": "lstm", "screen_size": 36, "hidden_size": 8, "precision": "float32"},
        ),
    ],
)
def test_networks_of_any_kind_are_loaded_as_they_were(
    env_name: str, values: dict[str, Any], tmp_path: Path
) -> None:
    summary = train(
        Config(
            **{
                **iterations(2),
                "env_name": env_name,
                "eval_episodes": 5,
                **values,
                "run_dir": str(tmp_path),
            }
        )
    )
    policy = load_policy(summary["checkpoint"], env_name=env_name)
    assert policy.evaluate(5, num_envs=2) == summary["evaluation"]


@pytest.mark.parametrize(
    "damage",
    [
        *(
            pytest.param(lambda data, n=n: data[: n * len(data) // 10], id=f"{n}-tenths-of-it")
            for n in range(1, 10)
        ),
        pytest.param(lambda data: data[:-1], id="all-but-a-byte"),
        pytest.param(lambda data: data + b"\0", id="a-byte-more"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"PK" + bytes(1000), id="something-else"),
        pytest.param(lambda data: b'{"model": []}', id="json"),
        pytest.param(lambda data: safetensors.torch.save({"a": torch.zeros(2)}), id="tensors-only"),
        pytest.param(
            lambda data: safetensors.torch.save({"a": torch.zeros(2)}, {"state": "{}"}),
            id="unsealed",
        ),
        pytest.param(
            lambda data: safetensors.torch.save({"a": torch.zeros(2)}, {"state": "[]"}),
            id="no-mapping",
        ),
    ],
)
def test_a_damaged_checkpoint_is_refused(
    saved: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(CheckpointError, match=r"damaged\.safetensors"):
        load_policy(path)


def test_a_flipped_bit_anywhere_is_noticed(saved: Path, tmp_path: Path) -> None:
    content, random = saved.read_bytes(), np.random.default_rng(0)
    path = tmp_path / "damaged.safetensors"
    header = 8 + int.from_bytes(content[:8], "little")
    places = [
        *range(8),
        *random.integers(8, header, 150),
        *random.integers(header, len(content), 50),
        len(content) - 1,
    ]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="damaged"):
            load_policy(path)
    path.write_bytes(content)
    load_policy(path)


def test_a_checkpoint_that_is_not_there_is_an_error_of_its_own(tmp_path: Path) -> None:
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(CheckpointError, match="no readable checkpoint"):
            load_policy(path)


@pytest.mark.parametrize(
    "change", [{"hidden_size": 32}, {"env_name": "Acrobot-v1"}, {"num_layers": 3}], ids=str
)
def test_a_checkpoint_of_another_network_or_environment_is_refused(
    saved: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    tensors, state = checkpoint.load(saved)
    checkpoint.save(tmp_path / "other", tensors, {**state, "config": {**state["config"], **change}})
    with pytest.raises(CheckpointError, match="is of another network or environment"):
        load_policy(tmp_path / "other")


class Own(ActorCritic):
    """Reads nothing but a weight."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.policy_head = policy_head(4, action_space, config)
        self.value = nn.Parameter(torch.zeros(()))

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        return self.policy_head(observations), self.value.expand(len(observations))


@pytest.mark.parametrize(
    ("name", "path"),
    [("env_name", "tests.environments:Bandit-v0"), ("model", "tests.test_policy:Own")],
)
def test_what_a_checkpoint_would_import_has_to_be_repeated(
    name: str, path: str, tmp_path: Path
) -> None:
    saved = train(Config(**{**iterations(2), name: path, "run_dir": str(tmp_path)}))["checkpoint"]
    for given in ({}, {name: path + "0"}, {"env_name": "CartPole-v1"}, {"model": "mlp"}):
        with pytest.raises(
            CheckpointError, match=f"would import {path}: if you trust it, repeat --{name}={path}"
        ):
            load_policy(saved, **given)
    policy = load_policy(saved, **{name: path})
    env = policy.make_env()
    assert env.action_space.contains(policy.predict(env.reset(seed=0)[0]))


@pytest.mark.parametrize("name", ["env_name", "model"])
def test_what_is_not_trusted_is_not_imported(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "untrusted.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    tensors, state = checkpoint.load(saved)
    config = {**state["config"], name: "untrusted:Thing"}
    checkpoint.save(tmp_path / "other", tensors, {**state, "config": config})
    with pytest.raises(CheckpointError, match="would import untrusted:Thing"):
        load_policy(tmp_path / "other")
    with pytest.raises(SystemExit):
        load_policy(tmp_path / "other", **{name: "untrusted:Thing"})


def test_a_model_of_ones_own_learns(tmp_path: Path) -> None:
    """To push where the pole leans and moves is linear in what CartPole shows, and earns several times chance."""
    values = {**CARTPOLE, "total_steps": 10_240, "learning_rate": 1e-2, "eval_episodes": 20}
    summary = train(
        Config(**{**values, "model": "tests.test_policy:Own", "run_dir": str(tmp_path)})
    )
    assert summary["evaluation"]["mean"] > 60
    assert set(safetensors.torch.load_file(summary["checkpoint"])) >= {
        "model.value",
        "model.policy_head.logits.weight",
    }


class Imitate(Learner):
    """Learns to do 0 whatever happens."""

    def loss(self, minibatch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        distribution, _ = self.forward(minibatch)
        loss = -distribution.log_prob(torch.zeros_like(minibatch["actions"])).mean()
        return loss, {
            "surprise": loss.detach(),
            "rows": torch.tensor(float(len(minibatch["actions"]))),
        }


def test_a_loss_of_ones_own_is_learned_from_and_its_metrics_are_kept(tmp_path: Path) -> None:
    config = Config(
        **iterations(6, run_dir=str(tmp_path), num_epochs=8, learning_rate=1e-2, eval_episodes=5)
    )
    summary = train(config, make_learner=Imitate)
    assert (
        summary["evaluation"]["returns"]
        == load_policy(summary["checkpoint"]).evaluate(5)["returns"]
        == always_0(5)
    )
    rows = metrics(tmp_path)
    assert float(rows[-1]["surprise"]) < 0.1 < 0.4 < float(rows[0]["surprise"])
    assert {row["rows"] for row in rows} == {"16"}


def always_0(episodes: int) -> list[float]:
    """The returns of doing 0 in the episodes of an evaluation of CartPole."""
    env, returns = gymnasium.make("CartPole-v1"), []
    for episode in range(episodes):
        env.reset(seed=integer_seed(0, Stream.EVALUATION, episode))
        returns.append(1.0)
        while not env.step(0)[2]:
            returns[-1] += 1
    return returns


class Slope(Learner):
    """The loss is the sum of all weights, so that every gradient is 1; the KL is what it is told, once an iteration."""

    kls: tuple[float, ...] = (0.0,) * 100

    def loss(self, minibatch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        self.calls = getattr(self, "calls", 0) + 1
        return sum(p.sum() for p in self.model.parameters()), {
            "approx_kl": torch.tensor(self.kls[self.calls - 1])
        }


def descent(
    folder: Path, learner: type[Learner] = Slope, **values: Any
) -> tuple[float, list[float]]:
    """How far each weight has come in a run by Slope, and its learning rates."""
    initial: list[Tensor] = []

    def make_learner(model: Any, config: Config) -> Learner:
        made = learner(model, config)
        initial.append(made.weights.clone())
        learners.append(made)
        return made

    learners: list[Learner] = []
    train(
        Config(**{**values, "run_dir": str(folder), "max_grad_norm": 0}), make_learner=make_learner
    )
    far = initial[0] - learners[0].weights
    assert far.std() < 1e-5
    return far.mean().item(), [float(row["learning_rate"]) for row in metrics(folder)]


def test_schedules_are_what_is_left_of_the_run_in_closed_form(tmp_path: Path) -> None:
    values = {
        "clip_coef": "linear:0.4",
        "entropy_coef": "linear:0.02",
        "learning_rate": "linear:1e-3",
    }
    train(Config(**iterations(4, **values, value_coef=0.5, run_dir=str(tmp_path))))
    for row, left in zip(metrics(tmp_path), (1, 0.75, 0.5, 0.25), strict=True):
        number = {name: float(x) for name, x in row.items() if x}
        assert number["learning_rate"] == pytest.approx(1e-3 * left)
        assert number["clip_coef"] == pytest.approx(0.4 * left)
        bonus = number["policy_loss"] + 0.5 * number["value_loss"] - number["loss"]
        assert bonus / number["entropy"] == pytest.approx(0.02 * left, rel=1e-2)


def test_schedules_may_be_functions_of_what_is_left_of_the_run(tmp_path: Path) -> None:
    def clip_coef(left: float) -> float:
        return 0.1 + 0.2 * left

    values = {
        "clip_coef": clip_coef,
        "learning_rate": lambda left: 1e-3 * left**2,
        "entropy_coef": lambda left: 0.01,
    }
    train(Config(**iterations(5, **values, run_dir=str(tmp_path))))
    rows = metrics(tmp_path)
    assert [float(row["clip_coef"]) for row in rows] == pytest.approx([0.3, 0.26, 0.22, 0.18, 0.14])
    assert [float(row["learning_rate"]) for row in rows] == pytest.approx(
        [1e-3, 6.4e-4, 3.6e-4, 1.6e-4, 4e-5]
    )
    assert "clip_coef" in json.loads((tmp_path / "config.json").read_text())["clip_coef"]


def test_the_clip_coefficients_of_schedules_reach_the_loss(tmp_path: Path) -> None:
    """With a coefficient that nothing keeps to, or that everything does."""
    values = {
        "num_epochs": 4,
        "learning_rate": 1e-2,
        "clip_coef": lambda left: 1e-6 if left < 1 else 1e6,
    }
    train(Config(**iterations(2, **values, num_steps=32, run_dir=str(tmp_path))))
    first, second = (float(row["clip_fraction"]) for row in metrics(tmp_path))
    assert first == 0
    assert second > 0.5


@pytest.mark.parametrize(
    ("schedule", "far"), [("linear:1e-2", 0.01 * (1 + 0.75 + 0.5 + 0.25)), ("1e-2", 0.04)]
)
def test_the_learning_rate_is_that_of_the_steps(tmp_path: Path, schedule: str, far: float) -> None:
    values = iterations(4, optimizer="torch.optim:SGD", learning_rate=schedule)
    assert descent(tmp_path, **values)[0] == pytest.approx(far, abs=1e-5)


@pytest.mark.parametrize("target_kl", [None, 0.04])
def test_an_adaptive_learning_rate_falls_where_the_kl_is_high_and_rises_where_it_is_low(
    tmp_path: Path, target_kl: float | None
) -> None:
    goal = target_kl or 0.01

    class Told(Slope):
        kls = tuple(goal * x for x in (1.6, 1.4, 0.6, 0.4, 0.4, 0.4, 9, 0.4))

    values = iterations(
        8, learning_rate="adaptive:4e-3", optimizer="torch.optim:SGD", target_kl=target_kl
    )
    far, rates = descent(tmp_path, Told, **values)
    expected = [4e-3, *[4e-3 / 1.5] * 3, 4e-3, 6e-3, 9e-3, 6e-3]
    assert rates == pytest.approx(expected, rel=1e-5)
    assert far == pytest.approx(sum(expected), abs=1e-5)


@pytest.mark.parametrize(("kl", "start", "end"), [(0.0, 5e-3, 1e-2), (1.0, 2e-5, 1e-5)])
def test_an_adaptive_learning_rate_has_bounds(
    tmp_path: Path, kl: float, start: float, end: float
) -> None:
    class Told(Slope):
        kls = (kl,) * 9

    rates = descent(tmp_path, Told, **iterations(5, learning_rate=f"adaptive:{start}"))[1]
    assert rates[0] == start
    assert rates[-2:] == pytest.approx([end, end])


@pytest.mark.parametrize(("size", "steps"), [(16, 3), (32, 2), (33, 1), (1, 33), (7, 5)])
def test_the_last_minibatch_has_the_rest(tmp_path: Path, size: int, steps: int) -> None:
    """33 rows: of 16 the last minibatch has a single one, which cannot be standardised."""
    values = iterations(
        2, num_envs=3, num_steps=11, batch_size=size, num_epochs=2, run_dir=str(tmp_path)
    )
    tensors = safetensors.torch.load_file(train(Config(**values))["checkpoint"])
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    for row in metrics(tmp_path):
        assert int(row["gradient_steps"]) == 2 * steps
        assert all(math.isfinite(float(x)) for x in row.values() if x)


@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "RMSprop"])
def test_optimizers_train(tmp_path: Path, optimizer: str) -> None:
    values = {**CARTPOLE, "optimizer": f"torch.optim:{optimizer}", "run_dir": str(tmp_path)}
    values["learning_rate"] = 0.3 if optimizer == "SGD" else 3e-3
    summary = train(Config(**{**values, "total_steps": 8192}))
    rows = metrics(tmp_path)
    assert float(rows[-1]["episode_return_mean"]) > 1.5 * float(rows[0]["episode_return_mean"])
    assert load_policy(summary["checkpoint"]).evaluate(6, num_envs=4) == summary["evaluation"]


@pytest.mark.parametrize(
    ("optimizer", "far"),
    [
        ("SGD", 1e-2),
        ("RMSprop", 1e-2 / math.sqrt(0.01)),
        ("Adam", 1e-2 / (1 + 1e-5)),
        ("Adagrad", 1e-2),
    ],
)
def test_the_first_step_is_that_of_the_optimizer(
    tmp_path: Path, optimizer: str, far: float
) -> None:
    """By their definitions, for gradients of 1."""
    values = iterations(1, learning_rate=1e-2, optimizer=f"torch.optim:{optimizer}")
    assert descent(tmp_path, **values)[0] == pytest.approx(far, rel=1e-3)


@pytest.mark.parametrize("flag", ["model", "optimizer"])
@pytest.mark.parametrize(
    "path",
    [
        *(
            "nowhere:Thing",
            "torch.nowhere:Thing",
            "torch.nn:Nowhere",
            "torch.nn.Linear",
            "nonsense",
            ":",
            "a:b:c",
        ),
        *("..:Thing", "math:pi", "torch:nn", "torch.nn:Linear"),
    ],
)
def test_a_wrong_import_path_is_answered_by_a_sentence(
    flag: str, path: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    run = tmp_path / "run"
    code = main.main(
        [f"--{flag}={path}", "--env_name=CartPole-v1", "--num_workers=0", f"--run_dir={run}"]
    )
    output, errors = capfd.readouterr()
    assert code == 2
    assert output == ""
    assert errors.startswith(f"error: --{flag}={path}")
    assert errors.count("\n") == 1
    assert not run.exists()


def test_verbose_0_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    for verbose, name in ((0, "quiet"), (1, "loud")):
        values = iterations(2, verbose=verbose, eval_episodes=1, run_dir=str(tmp_path / name))
        train(Config(**values), notes=["a note"])
        output, errors = capfd.readouterr()
        assert bool(output) == bool(verbose)
        assert errors == ""
    arguments = [
        f"--{name}={value}" for name, value in values.items() if name not in ("verbose", "run_dir")
    ]
    assert main.main([*arguments, "--verbose=0", f"--run_dir={tmp_path / 'command'}"]) == 0
    assert capfd.readouterr() == ("", "")
    assert len(metrics(tmp_path / "quiet")) == len(metrics(tmp_path / "command")) == 2


def test_the_example_environment_trains_as_it_says(tmp_path: Path) -> None:
    name = "examples.own_environment:HiddenVelocity"
    summary = train(Config(**iterations(2, env_name=name, model="lstm", run_dir=str(tmp_path))))
    env = load_policy(summary["checkpoint"], env_name=name).make_env()
    whole = env.unwrapped.state
    assert whole is None
    observation = env.reset(seed=0)[0]
    np.testing.assert_allclose(observation, np.asarray(env.unwrapped.state)[[0, 2]], rtol=1e-6)


def test_what_the_package_offers_is_imported_when_it_is_asked_for() -> None:
    assert ppo.Policy is sys.modules["ppo.policy.policy"].Policy
    with pytest.raises(AttributeError, match="module 'ppo' has no attribute 'nothing'"):
        _ = ppo.nothing


def test_an_adaptive_learning_rate_falls_where_the_kl_ends_the_passes(tmp_path: Path) -> None:
    values = {**CARTPOLE, "learning_rate": "adaptive:3e-3", "target_kl": 1e-3, "total_steps": 8192}
    train(Config(**values, run_dir=str(tmp_path)))
    rates = [float(row["learning_rate"]) for row in metrics(tmp_path)]
    assert min(rates) < 2e-3
    assert max(rates) <= 3e-3 * 1.5


class Shapeless(ActorCritic):
    """Forgets that values are (B,)."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.value = torch.nn.Linear(4, 1)
        self.policy_head = policy_head(4, action_space, config)

    def forward(self, observations: torch.Tensor) -> Any:
        return self.policy_head(observations), self.value(observations)


class Buffered(Shapeless):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, observations: torch.Tensor) -> Any:
        return self.policy_head(observations), self.value(observations).squeeze(-1)


@pytest.mark.parametrize(
    ("name", "reason"), [("Shapeless", "values (B,)"), ("Buffered", "buffers")]
)
def test_what_a_model_of_ones_own_lacks_is_said_before_it_trains(
    name: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    flags = [
        "--env_name=CartPole-v1",
        f"--model=tests.test_policy:{name}",
        f"--run_dir={tmp_path}/run",
    ]
    assert main.main(flags) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --model=tests.test_policy:{name} fails (TypeError")
    assert reason in error
