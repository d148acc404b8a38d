"""The settings of a run: every flag of the core, in one frozen dataclass."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from math import inf
from typing import Any, Literal, NewType

from ppo.errors import ConfigError

Auto = Literal["auto"]
Linear = NewType("Linear", str)  # "linear:<number>"
Adaptive = NewType("Adaptive", str)  # "adaptive:<number>"
Sizes = NewType("Sizes", str)  # such as "256,128"
# A number, linear, or a function of the fraction of the run that remains.
Schedule = float | Linear | Callable[[float], float]
TINY = 1e-30  # the least positive number that a flag takes


def flag(default: Any, low: float = -inf, high: float = inf, scope: str = "") -> Any:
    """Declare a flag. low, high: bounds of numbers, included."""
    return field(default=default, metadata={"low": low, "high": high, "scope": scope})


fixed = partial(flag, scope="fixed")  # a resumed run needs the same value
live = partial(flag, scope="live")  # Run.change may set another value


@dataclass(frozen=True)
class Config:
    """All settings of a run; the docstring below a field is its help. Raises ConfigError if two
    contradict each other. Defaults are those of Baselines' PPO2 for Atari games, with two changes:
    coefficients are constant, and numbers and rewards are normalized."""

    env_name: Any = fixed("LunarLander-v3")
    """Environment: a gymnasium id, or a class or function as module:Name or file.py:Name."""
    env_kwargs: dict[str, Any] = field(default_factory=dict, metadata={"scope": "fixed"})
    """Keyword arguments of the environment, as JSON such as {"name": 1}."""
    num_envs: int = fixed(8, 1, 1e6)
    """Number of parallel environments."""
    wrapper: tuple[Any, ...] = fixed(())
    """Wrapper, as module:Name(key=value); repeat the flag for several, innermost first."""
    max_episode_steps: int | None = fixed(None, 1)
    """Steps after which an episode is truncated (none: as registered with the environment)."""
    normalize_observations: bool | Auto = fixed("auto")
    """Standardize observations with running statistics, clipped at 10 (auto: all but images)."""
    normalize_rewards: bool | Auto = fixed("auto")
    """Divide rewards by the running standard deviation of the discounted return, clipped at 10
    (auto: unless rewards are clipped or observations are images)."""
    clip_rewards: bool = fixed(False)
    """Replace each reward by its sign: -1, 0 or 1."""
    image: Literal["gray", "color"] = fixed("gray")
    """Observe images in gray or color. Those with both sides below 36 pixels are numbers."""
    screen_size: int = fixed(84, 1, 1024)
    """Height and width in pixels to which images are resized."""
    frame_stack: int | Auto = fixed("auto", 1, 100)
    """Number of recent observations that are stacked (auto: 4 for images, else 1)."""
    frame_skip: int | Auto = fixed("auto", 1, 1000)
    """Number of frames for which an action is repeated (auto: 4 for Atari games, else 1)."""
    end_on_life_loss: bool = fixed(False)
    """Atari: in training, treat the loss of a life as the end of an episode."""
    total_steps: int = flag(1_000_000, 0, 1e15)
    """Environment steps, rounded down to whole rollouts (0: only initialize and evaluate)."""
    seed: int = fixed(0, 0, 2**32 - 1)
    """Random seed of weights, environments and actions."""
    learning_rate: Schedule | Adaptive = live(2.5e-4, TINY, 1e30)
    """Learning rate; linear:<number> decays to 0 over the run, adaptive:<number> keeps the KL
    divergence near --target_kl (0.01 if none)."""
    num_steps: int = fixed(128, 1, 1e7)
    """Steps per environment in each rollout."""
    num_epochs: int = live(4, 1, 1e4)
    """Number of epochs over each rollout."""
    num_minibatches: int = flag(4, 1, 1e9)
    """Number of minibatches per epoch."""
    batch_size: int | None = flag(None, 1, 1e12)
    """Minibatch size in transitions, in place of --num_minibatches."""
    gamma: float = flag(0.99, 0, 1)
    """Discount factor."""
    gae_lambda: float = live(0.95, 0, 1)
    """Lambda of generalized advantage estimation (GAE)."""
    clip_coef: Schedule = live(0.1, TINY, 1e9)
    """Clipping range of the probability ratio around 1; linear:<number> decays to 0."""
    clip_value_coef: Schedule | Auto | None = flag("auto", TINY, 1e9)
    """Clipping range of value updates (auto: --clip_coef, none: no clipping)."""
    normalize_advantages: Literal["minibatch", "rollout", "none"] = "minibatch"
    """Normalize advantages within each minibatch, within the rollout, or not at all."""
    entropy_coef: Schedule = live(0.01, 0, 1e9)
    """Coefficient of the entropy bonus; linear:<number> decays to 0."""
    value_coef: float = live(0.5, 0, 1e9)
    """Coefficient of the value loss, which is half the squared error."""
    max_grad_norm: float = live(0.5, 0)
    """Maximum gradient norm (0: no clipping)."""
    target_kl: float | None = live(None, TINY)
    """Stop an iteration's updates when the approximate KL divergence exceeds 1.5 times this."""
    learner: Any = "auto"
    """Subclass of ppo.Learner, as module:Name, for a loss, advantages or optimizer of your own."""
    callback: tuple[Any, ...] = ()
    """Subclass of ppo.Callback, as module:Name(key=value); repeat the flag for several."""
    model: Any = fixed("auto")
    """Network: mlp, cnn, cnn_small, lstm, gru, or a subclass of ActorCritic as module:Name
    (auto: cnn for images, else mlp)."""
    hidden_size: int | Auto | Sizes = fixed("auto", 1, 65536)
    """Units per hidden layer, or a list like 256,128 (auto: mlp 64, cnn 512, lstm and gru 128)."""
    num_layers: int = fixed(2, 1, 100)
    """Number of hidden layers of the MLP."""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = fixed("tanh")
    """Activation function of the MLP."""
    share_trunk: bool | Auto = fixed("auto")
    """Share the hidden layers of policy and value (auto: for images and recurrent networks)."""
    log_std_init: float | Auto = flag("auto", -20, 20)
    """Initial log standard deviation of continuous actions (auto: 0; -2 with --use_sde)."""
    use_sde: bool = fixed(False)
    """Use generalized state-dependent exploration (gSDE) for continuous actions."""
    sde_sample_freq: int = fixed(-1, -1)
    """Steps after which gSDE samples new noise (-1: once per rollout)."""
    name: str | None = None
    """Name of the run and of its folder in runs/."""
    run_dir: str | None = None
    """Folder of the run, which must be new or empty (none: runs/NAME)."""
    resume: str | None = None
    """Folder or name of the run to resume (auto: that of --run_dir or --name, if it exists)."""
    eval_every: int | None = flag(None, 1)
    """Iterations between evaluations; the best state is kept (none: evaluate only at the end)."""
    eval_env: Any | None = fixed(None)
    """Environment for evaluations (none: the one for training)."""
    eval_episodes: int = flag(20, 0, 1e6)
    """Episodes per evaluation, with deterministic actions."""
    checkpoint_every: int = flag(100, 1)
    """Iterations between checkpoints, which are at most ten minutes apart."""
    logger: tuple[str, ...] = ("console",)
    """Loggers besides metrics.csv and the console: tensorboard,wandb (none: no console)."""
    preset: str = "auto"
    """Preset for flags that are not given (auto: for the environment or its type, none: the
    defaults shown here)."""
    num_workers: int | Auto = flag("auto", 0, 4096)
    """Worker processes that step the environments (0: none, auto: one per core)."""
    threads: int | Auto = flag("auto", 1, 1024)
    """Threads of the learner (auto: one per core for images on the CPU, else one, or two for large
    minibatches of an mlp); 1 is fastest where other jobs use the cores."""
    step_timeout: float = flag(60.0, TINY, 1e9)
    """Seconds an environment call may take before its worker is replaced."""
    device: str = "cpu"
    """Device of training: cpu, cuda, cuda:N, mps, or auto (cuda for images, if there is one)."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of CNNs (auto: bfloat16 if the hardware supports it)."""
    inference: Literal["auto", "worker", "learner"] = "auto"
    """Where actions are computed: by workers for their own environments, or by the learner for all
    (auto: learner for images on CUDA)."""
    hooks: tuple[Any, ...] = ()  # callbacks with on_model: no flag

    def __post_init__(self) -> None:
        size = f"num_envs x num_steps = {self.rollout_size}"
        if not self.batch_size and self.num_minibatches > self.rollout_size:
            raise ConfigError(f"--num_minibatches={self.num_minibatches} must be at most {size}")
        if 0 < self.total_steps < self.rollout_size:
            raise ConfigError(f"--total_steps={self.total_steps} must be 0 or at least {size}")
        if self.num_workers != "auto" and self.num_workers > self.num_envs:
            raise ConfigError(f"--num_workers={self.num_workers} must be at most --num_envs")
        if self.clip_rewards and self.normalize_rewards is True:
            raise ConfigError("--normalize_rewards and --clip_rewards exclude each other")

    @property
    def rollout_size(self) -> int:
        """Number of transitions in a rollout, and so in an iteration."""
        return self.num_envs * self.num_steps

    @property
    def iterations(self) -> int:
        return self.total_steps // self.rollout_size

    def to_json(self) -> dict[str, Any]:
        return {name: as_json(getattr(self, name)) for name in flag_names()}


def flag_names(scope: str | None = None) -> list[str]:
    flags = [x for x in fields(Config) if x.name != "hooks"]
    return [x.name for x in flags if scope in (None, x.metadata.get("scope"))]


def name_of(thing: Any) -> str:
    """Return a text, or the module:Name of a class or function, or else of an object's class."""
    if isinstance(thing, str):
        return thing
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


def as_json(value: Any) -> Any:
    """Return a setting as JSON values; classes and functions by their names."""
    return json.loads(json.dumps(value, default=name_of))


def scheduled(setting: Any, remaining: float) -> Any:
    """Return a coefficient's value (adaptive: the first) when a fraction of the run remains."""
    if callable(setting):
        return float(setting(remaining))
    if not isinstance(setting, str):
        return setting
    shape, _, start = setting.partition(":")
    return float(start) * remaining if shape == "linear" else float(start)
