"""Teachers: what they say of a student's states, and how a student learns from it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import Bernoulli, Beta, Independent, Normal, kl_divergence

from ppo import Config, Learner, load_policy, train
from ppo.components import Components
from ppo.config.settings import settings_of
from ppo.envs.observations import pack
from ppo.extras.exploration.gsde import StateDependentGaussian
from ppo.extras.transfer.teacher import PartsReader
from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import (
    Categorical,
    DiagonalGaussian,
    Product,
    Squashed,
    TorchHead,
)
from ppo.models.observation_parts import split
from ppo.run.checkpoint import load
from tests.running import CARTPOLE, ROOT, Call, command, learn, metrics, spaces_of

SMALL = {**CARTPOLE, "total_steps": 1024, "eval_episodes": 0, "hidden_size": 8}
PARTS = "examples.from_teacher:CartPole"
STUDENT = {"model": "lstm", "hidden_size": 64, "policy_keys": "positions"}
LSTM = {"env_name": PARTS, **STUDENT, "num_minibatches": 2}


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def make_pairs() -> dict[str, Any]:
    """Make two distributions of each kind, for five states, of numbers in 64 bits, as functions of
    a tensor (n,), and the divergence of the second from the first by torch.distributions."""

    def categorical(x: Tensor) -> Categorical:
        return Categorical(x.view(5, 3, 4))

    def gaussian(x: Tensor) -> DiagonalGaussian:
        return DiagonalGaussian(x[:15].view(5, 3), x[15:18])

    def noisy(x: Tensor) -> StateDependentGaussian:
        features = draw(5, 4, seed=9)
        return StateDependentGaussian(x[:15].view(5, 3), x[15:27].view(4, 3), features)

    def bits(x: Tensor) -> Categorical:
        logits = torch.stack([torch.zeros(5, 2, dtype=x.dtype), x.view(5, 2)], -1)
        return Categorical(logits)

    def product(x: Tensor) -> Product:
        return Product([categorical(x[:60]), gaussian(x[60:78]), bits(x[78:88])], None)

    def of_choices(x: Tensor) -> Any:
        return Independent(torch.distributions.Categorical(logits=x.view(5, 3, 4)), 1)

    def of_normals(own: DiagonalGaussian) -> Any:
        return Independent(Normal(own.mean, own.log_std.exp().expand_as(own.mean)), 1)

    def of_bits(x: Tensor) -> Any:
        return Independent(Bernoulli(logits=x.view(5, 2)), 1)

    def sums(x: Tensor, y: Tensor) -> Tensor:
        return (
            kl_divergence(of_choices(x[:60]), of_choices(y[:60]))
            + kl_divergence(of_normals(gaussian(x[60:78])), of_normals(gaussian(y[60:78])))
            + kl_divergence(of_bits(x[78:]), of_bits(y[78:]))
        )

    def of_both(make: Any, convert: Any) -> Any:
        return lambda x, y: kl_divergence(convert(make(x)), convert(make(y)))

    return {
        "categorical": (60, categorical, of_both(lambda x: x, of_choices)),
        "binary": (10, bits, of_both(lambda x: x, of_bits)),
        "gaussian": (18, gaussian, of_both(gaussian, of_normals)),
        "gsde": (27, noisy, of_both(noisy, of_normals)),
        "squashed": (18, lambda x: Squashed(gaussian(x)), of_both(gaussian, of_normals)),
        "product": (88, product, sums),
    }


@pytest.mark.parametrize("kind", make_pairs())
def test_the_divergence_and_its_gradient_are_those_of_torch_and_of_finite_differences(
    kind: str,
) -> None:
    size, make, expected = make_pairs()[kind]
    teacher, student = draw(size, seed=1), draw(size, seed=2).requires_grad_()
    parameters = make(teacher).parameters()
    found = make(student).kl_from(parameters)
    assert found.shape == (5,)
    assert (found > 0).all()
    torch.testing.assert_close(found, expected(teacher, student))
    own, reference = (
        torch.autograd.grad(divergence.sum(), student)[0]
        for divergence in (found, expected(teacher, student))
    )
    torch.testing.assert_close(own, reference)
    assert torch.autograd.gradcheck(lambda x: make(x).kl_from(parameters), student)
    torch.testing.assert_close(make(teacher).kl_from(parameters), torch.zeros(5).double())


@pytest.mark.parametrize("name", ["Camera", "Lights"])
def test_parts_are_those_of_an_environment_that_shows_no_others(name: str) -> None:
    whole = spaces_of(f"tests.environments:{name}", screen_size=40).observations
    generator = np.random.default_rng(0)
    rows = [
        {
            part: generator.integers(0, 200, box.shape).astype(box.dtype)
            for part, box in whole.parts.items()
        }
        for _ in range(3)
    ]
    packed = np.stack([pack(whole, row) for row in rows])
    names = [*whole.parts]
    for chosen in ([names[0]], names[-1:], names[:2], names[1:], names):
        read = PartsReader(whole, chosen)
        found = read(packed)
        assert found.shape[1:] == read.space.shape
        assert found.dtype == read.space.dtype
        parts = split(read.space, torch.from_numpy(found))
        assert [*parts] == [x for x in names if x in chosen] or len(chosen) == 1
        for part, table in zip(sorted(chosen, key=names.index), parts.values(), strict=True):
            expected = np.stack([row[part] for row in rows])
            np.testing.assert_array_equal(table.numpy(), expected)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on CartPole with all its parts."""
    folder = tmp_path_factory.mktemp("teacher") / "run"
    learned = {"total_steps": 8192, "learning_rate": 3e-3}
    train(Config(**{**SMALL, **learned, "env_name": PARTS, "run_dir": str(folder)}))
    return folder


def components(**values: Any) -> Components:
    """Make the parts of a run as train does."""
    return Components(settings_of(Config(**{**SMALL, **values})))


def test_a_student_gets_the_teachers_distributions_and_their_gradient(teacher: Path) -> None:
    """Those of the loaded policy, of raw observations, whatever the student's statistics are; the
    gradient: that of the own loss plus the coefficient times the mean divergence."""
    flags: dict[str, Any] = {"env_name": PARTS, "teacher": str(teacher), "teacher_coef": 0.7}
    parts = components(**flags, num_minibatches=1, normalize_advantages="none")
    with parts.make_pool() as workers:
        learn(parts, workers.collect(1))
        rollout = parts.finish_collect(2, workers.collect(2))
        batch = parts.make_batch(rollout)
    policy = load_policy(teacher / "checkpoints" / "last.safetensors", PARTS)
    rows = policy.normalize(rollout.observations[:-1]).reshape(-1, 4)
    saved = load(teacher / "checkpoints" / "last.safetensors")
    model = components(env_name=PARTS).model
    model.load_state_dict({x: saved[f"model.{x}"] for x in model.state_dict()})
    with torch.no_grad():
        expected = model(torch.from_numpy(rows))[0]
    torch.testing.assert_close(batch["teacher"], expected.log_probs.flatten(1))

    learner = parts.learner
    metrics = learner.backend.compute_gradients(batch)
    with_teacher = learner.gradients.clone()
    learner.gradients.zero_()
    own, _ = Learner.loss(learner, batch, *learner.forward(batch))
    distribution, _ = learner.forward(batch)
    divergence = kl_divergence(
        torch.distributions.Categorical(logits=expected.logits[:, 0]),
        torch.distributions.Categorical(logits=distribution.logits[:, 0]),
    ).mean()
    assert metrics["teacher_kl"].item() == pytest.approx(divergence.item(), rel=1e-4, abs=1e-7)
    torch.autograd.backward(own + 0.7 * divergence)
    torch.testing.assert_close(with_teacher, learner.gradients, rtol=1e-4, atol=1e-6)


def test_distillation_learns_the_policy_from_the_teacher_alone(teacher: Path) -> None:
    flags: dict[str, Any] = {"env_name": PARTS, "teacher": str(teacher), "teacher_coef": 0.7}
    parts = components(**flags, distill=True, entropy_coef=0.5, normalize_advantages="none")
    with parts.make_pool() as workers:
        batch = parts.make_batch(parts.finish_collect(1, workers.collect(1)))
    parts.learner.backend.compute_gradients(batch)
    found = parts.learner.gradients.clone()
    parts.learner.gradients.zero_()
    distribution, values = parts.learner.forward(batch)
    divergence = distribution.kl_from(batch["teacher"]).mean()
    errors = 0.5 * (values - batch["returns"]).square().mean()
    torch.autograd.backward(0.7 * divergence + 0.5 * errors)
    torch.testing.assert_close(found, parts.learner.gradients, rtol=1e-4, atol=1e-6)


def test_a_teacher_of_fewer_parts_is_given_these(tmp_path: Path) -> None:
    """Of a camera's environment, trained where only the other parts are seen."""
    small = {"num_envs": 2, "num_steps": 8, "total_steps": 32, "screen_size": 40}
    own = {
        **SMALL,
        "env_name": "tests.extras.transfer.test_teacher:Numbers",
        "run_dir": str(tmp_path / "teacher"),
    }
    saved = train(Config(**own)).checkpoint
    flags: dict[str, Any] = {"env_name": "tests.environments:Camera", "teacher": saved, **small}
    with pytest.raises(ValueError, match=r"reads observations of shape \(4,\), and is given \(\d+"):
        components(**flags)
    parts = components(**flags, teacher_parts="switch,distance")
    with parts.make_pool() as workers:
        batch = parts.make_batch(parts.finish_collect(1, workers.collect(1)))
    rows = split(parts.spaces.observations, torch.from_numpy(parts.rollout.observations[:-1, 0]))
    numbers = torch.cat([rows["distance"], rows["switch"]], 1).numpy()
    policy = load_policy(saved, "tests.extras.transfer.test_teacher:Numbers")
    chosen = batch["teacher"].view(8, 2, 2)[:, 0].argmax(-1)
    expected = policy.actor(policy.normalize(numbers), None)
    np.testing.assert_array_equal(chosen, expected[:, 0])


class Numbers(gymnasium.Env):
    """What tests.environments:Camera shows beside its picture."""

    observation_space = spaces.Dict(
        {"distance": spaces.Box(-np.inf, np.inf, (2,)), "switch": spaces.Discrete(2)}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        return self._show(), float(action), bool(self.np_random.random() < 0.2), False, {}

    def _show(self) -> dict:
        distance = self.np_random.normal(size=2).astype(np.float32)
        return {"distance": distance, "switch": int(self.np_random.integers(2))}


def test_masks_and_nested_actions_are_those_of_the_student(tmp_path: Path) -> None:
    own = {**SMALL, "env_name": "tests.environments:Masked", "run_dir": str(tmp_path / "teacher")}
    saved = train(Config(**own)).checkpoint
    parts = components(env_name="tests.environments:Masked", teacher=saved)
    with parts.make_pool() as workers:
        batch = parts.make_batch(parts.finish_collect(1, workers.collect(1)))
    probabilities = batch["teacher"].exp()
    assert (probabilities[~batch["action_masks"]] == 0).all()
    torch.testing.assert_close(probabilities.sum(1), torch.ones(len(probabilities)))
    metrics = parts.learner.update(batch, 1)
    assert np.isfinite(metrics["teacher_kl"])


def run_flags(folder: Path, teacher: Path) -> list[str]:
    """Return the flags of a student's run of 16 iterations."""
    return [
        f"--env_name={PARTS}",
        *(f"--{name}={value}" for name, value in STUDENT.items()),
        "--preset=none",
        "--num_envs=4",
        "--num_steps=64",
        "--num_minibatches=2",
        "--total_steps=4096",
        "--num_workers=1",
        "--checkpoint_every=3",
        "--eval_episodes=2",
        f"--teacher={teacher}",
        f"--run_dir={folder}",
    ]


def run(*arguments: str) -> None:
    done = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_has_the_same_bytes(teacher: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(*run_flags(whole, teacher), "--critic_warmup=6")
    with subprocess.Popen(
        command(*run_flags(killed, teacher), "--critic_warmup=6"),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        while not (killed / "checkpoints" / "000000000768.safetensors").exists():
            assert process.poll() is None
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
    assert len(metrics(killed)) < 16
    run(f"--resume={killed}", f"--env_name={PARTS}")
    states = [load(folder / "checkpoints" / "last.safetensors") for folder in (whole, killed)]
    tensors = [{x: y for x, y in state.items() if isinstance(y, Tensor)} for state in states]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(x, tensors[1][name]) for name, x in tensors[0].items())
    assert metrics(whole) == metrics(killed)


@pytest.fixture
def student(teacher: Path, tmp_path: Path) -> Path:
    """A short run, with a copy of the teacher beside it."""
    copy = tmp_path / "teacher"
    shutil.copytree(teacher, copy, symlinks=True)
    flags = {"env_name": PARTS, "teacher": str(copy), "run_dir": str(tmp_path / "student")}
    train(Config(**{**SMALL, **flags}))
    return tmp_path / "student"


def test_a_resumed_student_needs_its_own_teacher(
    student: Path, teacher: Path, tmp_path: Path, call: Call
) -> None:
    copy = tmp_path / "teacher"
    resume = [f"--resume={student}", f"--env_name={PARTS}", "--total_steps=1280"]
    shutil.rmtree(copy)
    code, _, error = call(*resume)
    assert (code, error.count("\n")) == (3, 1), error
    assert f"--teacher={copy}: there is no such run or checkpoint" in error
    other = tmp_path / "other"
    train(Config(**{**SMALL, "env_name": PARTS, "seed": 5, "run_dir": str(other)}))
    shutil.move(other, copy)
    code, _, error = call(*resume)
    assert (code, error.count("\n")) == (3, 1), error
    assert f"--teacher={copy} is not what the run was begun with" in error
    code, _, error = call(*resume, f"--teacher={teacher}", "--verbose=0")
    assert (code, error) == (0, "")
    state = load(student / "checkpoints" / "last.safetensors")
    assert state["iteration"] == 5


class BetaModel(ActorCritic):
    """Acts by a distribution of torch's own."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.policy = torch.nn.Linear(3, 1)
        self.policy_head = TorchHead(action_space, config)

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        numbers = self.policy(observations).exp() + 1
        return self.policy_head(Independent(Beta(numbers, numbers), 1)), numbers[:, 0]


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short runs that cannot teach CartPole: their folders."""
    folder = tmp_path_factory.mktemp("strangers")
    for name, flags in {
        "acrobot": {"env_name": "Acrobot-v1"},
        "pendulum": {"env_name": "Pendulum-v1"},
        "squashed": {"env_name": "Pendulum-v1", "squash_actions": True},
        "lstm": {"model": "lstm"},
        "own": {"model": "examples.own_model:NormalizedActorCritic"},
    }.items():
        train(Config(**{**SMALL, "num_iterations": 1, "run_dir": str(folder / name), **flags}))
    return folder


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (
            "--teacher={}/acrobot",
            2,
            "reads observations of shape (6,), and is given (4,): name the parts",
        ),
        ("--teacher={}/lstm", 2, "--teacher={}/lstm is recurrent: give one without a memory"),
        ("--teacher={}/own", 3, "if you trust it, give --teacher_model=examples.own_model:Norm"),
        ("--teacher={}/lstm --teacher_parts=arm", 2, "--teacher_parts=arm: give some of observati"),
        ("--distill", 2, "--distill means nothing without --teacher: give both, or neither"),
        (
            "--env_name=Pendulum-v1 --teacher={}/squashed",
            2,
            "--squash_actions=False: give that of the teacher, True",
        ),
        (
            "--env_name=Pendulum-v1 --teacher={}/pendulum --inference=learner "
            "--model=tests.extras.transfer.test_teacher:BetaModel",
            2,
            "--teacher needs distributions with a closed form of the KL",
        ),
    ],
)
def test_wrong_teachers_are_refused_with_one_sentence(
    flags: str, code: int, message: str, strangers: Path, tmp_path: Path, call: Call
) -> None:
    common = ["--preset=none", "--num_workers=0", f"--run_dir={tmp_path}/run"]
    found, output, error = call("--env_name=CartPole-v1", *flags.format(strangers).split(), *common)
    assert (found, output, error.count("\n")) == (code, "", 1), error
    assert message.format(strangers) in error
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ranks_ask_the_teacher_for_their_own_rows(teacher: Path, tmp_path: Path) -> None:
    flags = [f"--teacher={teacher}", "--preset=none", f"--env_name={PARTS}", "--num_envs=4"]
    flags += ["--num_steps=64", "--total_steps=512", "--num_workers=0", "--eval_episodes=0"]
    run(*flags, f"--run_dir={tmp_path}/one")
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    main = ["main.py", *flags, "--report=False", f"--run_dir={tmp_path}/two"]
    done = subprocess.run([*ranks, *main], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [
        [float(row["teacher_kl"]) for row in metrics(tmp_path / name)] for name in ("one", "two")
    ]
    assert found[0] == pytest.approx(found[1], rel=0.02)  # other minibatches of the same rows
