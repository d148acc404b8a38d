"""Observations far from zero, such as Unix time: learned from as without the offset."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import ppo
from ppo import train

UNIX_TIME = 1.7e9
STEPS = 25  # of an episode, each of which pays 1 for the right choice
LEARNED = 0.85 * STEPS
SHORT: dict[str, Any] = {
    "num_envs": 8,
    "num_steps": 64,
    "num_minibatches": 4,
    "total_steps": 8192,
    "num_workers": 0,
    "seed": 1,
    "preset": "none",
    "learning_rate": 2e-3,
    "eval_episodes": 20,
    "verbose": 0,
    "report": False,
}


class Signs(gymnasium.Env[Any, Any]):
    """Two random numbers near an offset: 1 is right where their distances from it add up to more
    than 0. form: how they are shown, as "plain" numbers, or "beside" a choice or an "image"."""

    def __init__(
        self, offset: float = 0, dtype: str = "float64", width: float = 0.2, form: str = "plain"
    ) -> None:
        self.offset, self.dtype, self.width, self.form = offset, np.dtype(dtype), width, form
        is_whole = self.dtype.kind == "i"
        low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if is_whole else (-np.inf, np.inf)
        numbers: Any = spaces.Box(low, high, (2,), self.dtype)
        self.beside: dict[str, Any] = {}
        if form == "beside":
            self.beside = {"choice": spaces.Discrete(3)}
        elif form == "image":
            self.beside = {"camera": spaces.Box(0, 255, (40, 40), np.uint8)}
        self.observation_space = numbers
        if self.beside:
            self.observation_space = spaces.Dict(numbers=numbers, **self.beside)
        self.action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        reward = float(action == self.right)
        self.time += 1
        return self._observe(), reward, False, self.time >= STEPS, {}

    @property
    def right(self) -> bool:
        return bool(self.numbers.sum() > 0)

    def _observe(self) -> Any:
        self.numbers = self.np_random.uniform(-1, 1, 2)
        shown = self.offset + self.width * self.numbers
        shown = (np.rint(shown) if self.dtype.kind == "i" else shown).astype(self.dtype)
        if not self.beside:
            return shown
        zeros = {name: np.zeros(space.shape, space.dtype) for name, space in self.beside.items()}
        return {"numbers": shown, **zeros}


def together(num_envs: int, **options: Any) -> SyncVectorEnv:
    """Make a vector environment."""
    return SyncVectorEnv([lambda: Signs(**options)] * num_envs)


class Pair:
    """A PettingZoo parallel environment of two agents, each with Signs of its own."""

    possible_agents = ("one", "other")
    render_mode = None

    def __init__(self, **options: Any) -> None:
        self.envs = {agent: Signs(**options) for agent in self.possible_agents}
        self.agents: list[str] = []

    @property
    def unwrapped(self) -> "Pair":
        return self

    def observation_space(self, agent: str) -> Any:
        return self.envs[agent].observation_space

    def action_space(self, agent: str) -> Any:
        return self.envs[agent].action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents = [*self.possible_agents]
        seeds = zip(self.envs.values(), (seed, seed and seed + 1), strict=True)
        found = [env.reset(seed=own)[0] for env, own in seeds]
        return dict(zip(self.agents, found, strict=True)), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        results = [self.envs[agent].step(action) for agent, action in actions.items()]
        tables = [dict(zip(actions, table, strict=True)) for table in zip(*results, strict=True)]
        self.agents = [agent for agent in self.agents if not tables[3][agent]]
        return tuple(tables)

    def close(self) -> None:
        pass


def learned(make: Callable[..., Any], folder: Path, **options: Any) -> Any:
    """Train where options are of the environment; return the summary."""
    flags = {**SHORT, "env_kwargs": options, "run_dir": str(folder)}
    if options.get("form") == "image":
        flags |= {"screen_size": 40, "model": "cnn_small", "total_steps": 4096}
    return train(make, **flags)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Signs, {"offset": UNIX_TIME}),
        (Signs, {"offset": 1000, "width": 0.1, "dtype": "float32"}),
        (Signs, {"offset": UNIX_TIME, "width": 100, "dtype": "int64"}),
        (Signs, {"offset": UNIX_TIME, "form": "beside"}),
        pytest.param(
            Signs,
            {"offset": UNIX_TIME, "width": 100, "dtype": "int32", "form": "image"},
            marks=pytest.mark.slow,
        ),
        (together, {"offset": 5e6}),
        (Pair, {"offset": -UNIX_TIME}),
    ],
    ids=lambda x: "-".join(map(str, x.values())) if isinstance(x, dict) else x.__name__,
)
def test_what_is_far_from_zero_is_learned_from(
    make: Callable[..., Any], options: dict[str, Any], tmp_path: Path
) -> None:
    summary = learned(make, tmp_path / "run", **options)
    assert summary.evaluation.mean > LEARNED


@pytest.mark.parametrize("form", ["plain", pytest.param("image", marks=pytest.mark.slow)])
def test_an_onnx_file_reads_what_is_far_from_zero(
    form: str, tmp_path: Path, call: Callable[..., Any]
) -> None:
    learned(Signs, tmp_path / "run", offset=UNIX_TIME, form=form)
    path = tmp_path / "policy.onnx"
    flag = f"--env_name={__name__}:Signs"
    code, _, errors = call("export", str(tmp_path / "run"), str(path), flag)
    assert code == 0, errors
    session = onnxruntime.InferenceSession(path)
    env = Signs(offset=UNIX_TIME, form=form)
    right = 0
    for seed in range(100):
        observation, _ = env.reset(seed=seed)
        inputs = {"observation": observation}
        if form == "image":
            inputs = {"numbers": observation["numbers"], "camera": np.zeros((40, 40, 4), np.uint8)}
        found = session.run(None, {name: part[None] for name, part in inputs.items()})
        right += found[0].item() == env.right
    assert right > 85


def test_demonstrations_far_from_zero_are_cloned(tmp_path: Path) -> None:
    file = tmp_path / "right.npz"
    env = ppo.Recorder(Signs(offset=UNIX_TIME), file)
    for seed in range(20):
        env.reset(seed=seed)
        is_over = False
        while not is_over:
            *_, is_over, _ = env.step(int(env.unwrapped.right))
    env.close()
    flags = {**SHORT, "total_steps": 512, "learning_rate": 1e-9, "demonstrations": str(file)}
    summary = train(Signs, env_kwargs={"offset": UNIX_TIME}, run_dir=str(tmp_path / "run"), **flags)
    assert summary.evaluation.mean > LEARNED


def test_a_run_says_where_float32_has_rounded_what_is_seen(tmp_path: Path) -> None:
    def events(**options: Any) -> str:
        folder = tmp_path / f"{len([*tmp_path.iterdir()])}"
        flags = {**SHORT, "total_steps": 1024, "eval_episodes": 0, "run_dir": str(folder)}
        train(Signs, env_kwargs={**options}, **flags)
        return (folder / "events.jsonl").read_text()

    told = events(offset=5e6, dtype="float32")
    assert "float32 rounds" in told
    assert "multiples of 0.5" in told
    told = events(offset=UNIX_TIME, dtype="float32", form="beside")
    assert "numbers" in told
    assert "multiples of 128" in told
    for options in ({"offset": 1000, "dtype": "float32"}, {"offset": UNIX_TIME}):
        assert "float32 rounds" not in events(**options)
