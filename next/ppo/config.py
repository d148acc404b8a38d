"""The settings of a run: every flag of the core, in one frozen dataclass."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, Literal, NewType

from ppo.errors import ConfigError

Auto = Literal["auto"]
Shape = NewType("Shape", str)  # "linear:<number>" or "adaptive:<number>"
Sizes = NewType("Sizes", str)  # such as "256,128"
# A number, a shape, or a function of the fraction of the run that remains.
Schedule = float | Shape | Callable[[float], float]


def flag(default: Any, *, low: float = -inf, high: float = inf, scope: str = "") -> Any:
    """Declare a flag. low, high: bounds of numbers, included; scope: "fixed" if a resumed run needs
    the same value, "live" if Run.change may set another."""
    return field(default=default, metadata={"low": low, "high": high, "scope": scope})


TINY = 1e-30  # the least positive number that a flag takes


@dataclass(frozen=True)
class Config:
    """All settings of a run. The plain defaults are those of Baselines' PPO2 for Atari games, but
    with constant coefficients and, except for images, with normalisation. The docstring below a
    field is its help.

    Raises ConfigError if two settings contradict each other."""

    env_name: Any = flag("LunarLander-v3", scope="fixed")
    """Environment: a gymnasium id such as CartPole-v1, or a class or function as module:Name or
    file.py:Name."""
    env_kwargs: dict[str, Any] = field(default_factory=dict, metadata={"scope": "fixed"})
    """Keyword arguments of the environment, as JSON such as {"name": 1}."""
    num_envs: int = flag(8, low=1, high=1e6, scope="fixed")
    """Number of parallel environments."""
    wrapper: tuple[Any, ...] = flag((), scope="fixed")
    """Wrapper of the environment, as module:Name(key=value); repeat the flag for several, the
    innermost first."""
    max_episode_steps: int | None = flag(None, low=1, scope="fixed")
    """Steps after which an episode is truncated (none: as registered with the environment)."""
    normalize_observations: bool | Auto = flag("auto", scope="fixed")
    """Standardise observations by running statistics, clipped at 10 (auto: all but images)."""
    normalize_rewards: bool | Auto = flag("auto", scope="fixed")
    """Divide rewards by the running standard deviation of the discounted return, clipped at 10
    (auto: unless rewards are clipped or observations are images)."""
    clip_rewards: bool = flag(False, scope="fixed")
    """Replace each reward by its sign: -1, 0 or 1."""
    image: Literal["gray", "color"] = flag("gray", scope="fixed")
    """How images are observed: in gray or color. Those below 36 x 36 pixels are numbers."""
    screen_size: int = flag(84, low=1, high=1024, scope="fixed")
    """Height and width in pixels to which images are resized."""
    frame_stack: int | Auto = flag("auto", low=1, high=100, scope="fixed")
    """Number of recent observations that are stacked (auto: 4 for images, else 1)."""
    frame_skip: int | Auto = flag("auto", low=1, high=1000, scope="fixed")
    """Number of frames for which an action is repeated (auto: 4 for Atari games, else 1)."""
    end_on_life_loss: bool = flag(False, scope="fixed")
    """Atari: end the episode, but not the game, when a life is lost, in training only."""

    total_steps: int = flag(1_000_000, low=0, high=1e15)
    """Number of environment steps, rounded down to whole rollouts (0: initialise, evaluate)."""
    seed: int = flag(0, low=0, high=2**32 - 1, scope="fixed")
    """Random seed of weights, environments and actions."""
    learning_rate: Schedule = flag(2.5e-4, low=TINY, high=1e30, scope="live")
    """Learning rate; linear:<number> decays to 0 over the run, adaptive:<number> keeps the KL
    divergence near --target_kl, or else 0.01."""
    num_steps: int = flag(128, low=1, high=1e7, scope="fixed")
    """Steps of each environment per rollout."""
    num_epochs: int = flag(4, low=1, high=1e4, scope="live")
    """Number of epochs over each rollout."""
    num_minibatches: int = flag(4, low=1, high=1e9)
    """Number of minibatches per epoch."""
    batch_size: int | None = flag(None, low=1, high=1e12)
    """Minibatch size in transitions, in place of --num_minibatches."""
    gamma: float = flag(0.99, low=0, high=1)
    """Discount factor."""
    gae_lambda: float = flag(0.95, low=0, high=1, scope="live")
    """Lambda of generalized advantage estimation (GAE)."""
    clip_coef: Schedule = flag(0.1, low=TINY, high=1e9, scope="live")
    """Clipping range of the probability ratio around 1; linear:<number> decays to 0."""
    clip_value_coef: Schedule | Auto | None = flag("auto", low=TINY, high=1e9)
    """Clipping range of the change of values (auto: --clip_coef, none: no clipping)."""
    normalize_advantages: Literal["minibatch", "rollout", "none"] = flag("minibatch")
    """Normalise advantages within each minibatch, within the rollout, or not at all."""
    entropy_coef: Schedule = flag(0.01, low=0, high=1e9, scope="live")
    """Coefficient of the entropy bonus; linear:<number> decays to 0."""
    value_coef: float = flag(0.5, low=0, high=1e9, scope="live")
    """Coefficient of the value loss, which is half the squared error."""
    max_grad_norm: float = flag(0.5, low=0, scope="live")
    """Maximum norm to which the gradient is clipped (0: no clipping)."""
    target_kl: float | None = flag(None, low=TINY, scope="live")
    """End the epochs of an iteration when the approximate KL divergence exceeds 1.5 times this."""
    optimizer: Any = flag("torch.optim:Adam", scope="fixed")
    """Optimizer class, as module:Name(key=value) with arguments other than the learning rate."""
    learner: Any = flag("auto")
    """Subclass of ppo.Learner, as module:Name, for a loss or advantages of your own."""
    callback: tuple[str, ...] = flag(())
    """Subclass of ppo.Callback, as module:Name(key=value); repeat the flag for several."""

    model: Any = flag("auto", scope="fixed")
    """Network: mlp, cnn, cnn_small, lstm, gru, or a subclass of ActorCritic as module:Name
    (auto: cnn for images, else mlp)."""
    hidden_size: int | Auto | Sizes = flag("auto", low=1, high=65536, scope="fixed")
    """Units per hidden layer, or of each as 256,128 (auto: 64 for mlp, 512 for cnn,
    128 for lstm and gru)."""
    num_layers: int = flag(2, low=1, high=100, scope="fixed")
    """Number of hidden layers for numbers."""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = flag("tanh", scope="fixed")
    """Activation function of these hidden layers."""
    share_trunk: bool | Auto = flag("auto", scope="fixed")
    """Share the hidden layers of policy and value (auto: for images and recurrent networks)."""
    log_std_init: float | Auto = flag("auto", low=-20, high=20)
    """Initial log standard deviation of continuous actions (auto: 0; -2 with --use_sde)."""
    squash_actions: bool = flag(False, scope="fixed")
    """Bound continuous actions by tanh in place of clipping."""
    use_sde: bool = flag(False, scope="fixed")
    """Explore continuous actions by generalized state-dependent exploration (gSDE)."""
    sde_sample_freq: int = flag(-1, low=-1, scope="fixed")
    """Steps after which gSDE samples new noise (-1: once per rollout)."""

    name: str | None = flag(None)
    """Name of the run and of its folder in runs/."""
    run_dir: str | None = flag(None)
    """Folder of the run, which must be new or empty (none: runs/NAME)."""
    resume: str | None = flag(None)
    """Folder or name of the run to resume (auto: --run_dir or --name, if there is such a run)."""
    eval_every: int | None = flag(None, low=1)
    """Iterations between evaluations, of which the best state is kept (none: only at the end)."""
    eval_episodes: int = flag(20, low=0, high=1e6)
    """Episodes per evaluation, with deterministic actions."""
    checkpoint_every: int = flag(100, low=1)
    """Iterations between checkpoints, which are at most ten minutes apart."""
    logger: tuple[str, ...] = flag(("console",))
    """Loggers in addition to metrics.csv: some of console,tensorboard,wandb, or none."""
    preset: str = flag("auto")
    """Values of flags that are not given: a preset or a JSON file (auto: those tuned for the
    environment or its kind, none: the defaults shown here)."""

    num_workers: int | Auto = flag("auto", low=0, high=4096)
    """Worker processes that step the environments (0: none, auto: one per core)."""
    step_timeout: float = flag(60.0, low=TINY, high=1e9)
    """Seconds that a call of an environment may take before its worker is replaced."""
    device: str = flag("cpu")
    """Device on which the policy is trained: cpu, cuda, cuda:N, mps, or auto (cuda for images if
    there is one)."""
    precision: Literal["auto", "float32", "bfloat16"] = flag("auto")
    """Arithmetic of CNNs (auto: bfloat16 if the hardware supports it)."""
    inference: Literal["auto", "worker", "learner"] = flag("auto")
    """Where actions are computed: by workers for their own environments, or by the learner for all
    (auto: learner for images on CUDA)."""

    hooks: tuple[Any, ...] = field(default=(), metadata={"scope": "object"})

    def __post_init__(self) -> None:
        size = f"the {self.rollout_size} steps of an iteration (num_envs x num_steps)"
        if not self.batch_size and self.num_minibatches > self.rollout_size:
            raise ConfigError(f"--num_minibatches={self.num_minibatches}: give at most {size}")
        if 0 < self.total_steps < self.rollout_size:
            raise ConfigError(f"--total_steps={self.total_steps}: give at least {size}")
        if self.num_workers != "auto" and self.num_workers > self.num_envs:
            raise ConfigError(f"--num_workers={self.num_workers}: give at most --num_envs")
        if self.clip_rewards and self.normalize_rewards is True:
            raise ConfigError("--normalize_rewards=True and --clip_rewards: give one of them")

    @property
    def rollout_size(self) -> int:
        """Number of transitions in a rollout, and so in an iteration."""
        return self.num_envs * self.num_steps

    @property
    def iterations(self) -> int:
        """Number of iterations of the whole run."""
        return self.total_steps // self.rollout_size

    def to_json(self) -> dict[str, Any]:
        """Return all settings as JSON values; classes and functions by their names."""
        return {name: as_json(getattr(self, name)) for name in flag_names()}


def flag_names(scope: str | None = None) -> list[str]:
    """Return the names of all flags, or of those with a scope."""
    return [
        x.name
        for x in fields(Config)
        if x.metadata["scope"] != "object" and scope in (None, x.metadata["scope"])
    ]


def name_of(thing: Any) -> str:
    """Return the name by which a class or function can be imported, as module:Name; other objects
    by their class."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


def as_json(value: Any) -> Any:
    """Return a setting as JSON values."""
    if isinstance(value, tuple):
        return [as_json(x) for x in value]
    try:
        json.dumps(value)
    except TypeError:
        return name_of(value)
    return value


def scheduled(setting: Any, remaining: float) -> Any:
    """Return the value of a coefficient when a fraction of the run remains, 1 at its start.

    setting: a number or None, returned as it is; "linear:<number>", the number times remaining;
    "adaptive:<number>", with which the learner starts; or a function of remaining."""
    if callable(setting):
        return float(setting(remaining))
    if not isinstance(setting, str):
        return setting
    shape, _, start = setting.partition(":")
    return float(start) * remaining if shape == "linear" else float(start)
