"""What a run is made of: one frozen, validated dataclass, from which the command line is derived."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppo.config.flags import AUTO, COUNT, NONE, POSITIVE, SHARE, SWITCH, Flags, flag
from ppo.errors import ConfigError
from ppo.models import MODELS

PRESETS = Path(__file__).parent / "presets"
LOGGERS = r"none|(console|tensorboard|wandb)(,(console|tensorboard|wandb))*"
SOME_LOGGERS = "none, or some of console,tensorboard,wandb"
PATH = r"[\w.]+:\w+"
LINEAR = ("linear:",)  # a number follows
RATES = ("linear:", "adaptive:")
CLIPS = ("linear:", "auto", "none")
RESUME = ("none", "auto")
ELSEWHERE = (
    *(
        "name",
        "run_dir",
        "resume",
        "logger",
        "histogram_every",
        "log_checkpoint",
        "verbose",
        "log_every",
        "debug",
    ),
    *("report", "video_every", "seeds"),
    *("checkpoint_every", "step_timeout", "reset_timeout"),
)  # flags that say where a run is and how it is watched, not what it is
FIXED = (
    *(
        "env_name",
        "env_kwargs",
        "preset",
        "seed",
        "model",
        "optimizer",
        "num_envs",
        "num_steps",
        "hidden_size",
    ),
    *(
        "num_layers",
        "activation",
        "share_trunk",
        "use_sde",
        "squash_actions",
        "normalize_observations",
    ),
    *("normalize_rewards", "clip_rewards", "frame_stack", "screen_size", "frame_skip", "noop_max"),
    *("end_on_life_loss", "sticky_actions", "full_action_space"),
)  # flags that a run cannot be gone on with otherwise
Schedule = float | str | None | Callable[[float], float]


def scheduled(value: Any, remaining: float) -> Any:
    """What a schedule comes to when remaining (1 at first, towards 0) of the iterations are left: a function of that,
    "linear:x" for x * remaining, "adaptive:x" for x at first, or a number or None as it is."""
    if value is None or callable(value):
        return value and value(remaining)
    word, _, number = str(value).rpartition(":")
    return float(number) * (remaining if word == "linear" else 1)


@dataclass(frozen=True)
class Config(Flags):
    """Every choice of a run. Raises ConfigError if a value is not what its flag takes, or if two contradict each other.
    The plain defaults are those of Baselines' PPO2 with normalisation."""

    about = "Train PPO on a gymnasium environment. Other commands: check, evaluate, export, plot, render, report."

    env_name: str = flag(
        "LunarLander-v3", "gymnasium id, module:id or module:Class", "env", "env_id", kind=str
    )
    env_kwargs: Any = flag("{}", "arguments of the environment", kind=dict)
    model: str = flag(
        "auto",
        "network, or one's own; auto: mlp, cnn for images",
        kind=str,
        pattern=PATH,
        words=("auto", *MODELS),
    )
    preset: str = flag(
        "auto",
        "tuned values: auto (the environment's or family's, if any), none, or a name",
        kind=str,
    )
    seed: int = flag(0, "seed of everything random", kind=int, low=0, high=2**32 - 1)
    total_steps: int = flag(1_000_000, "environment steps to train for", "total_timesteps", **COUNT)
    num_iterations: int | None = flag(None, "most iterations to train for", words=NONE, **COUNT)
    num_envs: int = flag(8, "environments stepped in parallel", **COUNT)
    num_workers: int | str = flag(
        "auto",
        "processes that step them; 0: this one; auto: one a core, or 0 if that is faster",
        kind=int,
        low=0,
        words=AUTO,
    )
    num_steps: int = flag(128, "steps of each environment in an iteration", **COUNT)
    num_epochs: int = flag(4, "passes over each rollout", "ppo_epochs", "update_epochs", **COUNT)
    num_minibatches: int = flag(4, "gradient steps in a pass", "num_batches", **COUNT)
    batch_size: int | None = flag(
        None, "or the transitions in one", "minibatch_size", words=NONE, **COUNT
    )
    learning_rate: Schedule = flag(2.5e-4, "step size", "lr", high=1e30, words=RATES, **POSITIVE)
    optimizer: str = flag(
        "torch.optim:Adam", "class; others than Adam by their defaults", kind=str, pattern=PATH
    )
    gamma: float = flag(0.99, "discount per step", **SHARE)
    gae_lambda: float = flag(0.95, "trace decay of the advantage estimator", "lam", **SHARE)
    clip_coef: Schedule = flag(
        0.1, "of policy ratios", "epsilon", "clip_range", words=LINEAR, **POSITIVE
    )
    clip_value_coef: Schedule = flag(
        "auto", "of values; auto: clip_coef", "clip_range_vf", words=CLIPS, **POSITIVE
    )
    value_coef: float = flag(
        0.5, "weight of the value loss", "value_loss_coef", "vf_coef", kind=float, low=0
    )
    entropy_coef: Schedule = flag(
        0.01, "weight of the entropy bonus", "ent_coef", kind=float, low=0, words=LINEAR
    )
    max_grad_norm: float = flag(
        0.5, "gradients' global norm is clipped to this; 0: not clipped", kind=float, low=0
    )
    target_kl: float | None = flag(
        None, "a KL above 1.5 x this ends the passes", words=NONE, **POSITIVE
    )
    normalize_advantages: str = flag(
        "minibatch", "set to standardise them in", words=("minibatch", "rollout", "none")
    )
    normalize_observations: bool | str = flag(
        "auto", "standardise observations; auto: not images", **SWITCH
    )
    normalize_rewards: bool | str = flag(
        "auto", "divide by returns' deviation; auto: not images' or clipped", **SWITCH
    )
    clip_rewards: bool = flag(False, "learn from the sign of rewards", kind=bool)
    hidden_size: int | str = flag(
        "auto", "units in a hidden layer; auto: the model's", high=65536, words=AUTO, **COUNT
    )
    num_layers: int = flag(2, "hidden layers on vectors", high=100, **COUNT)
    activation: str = flag(
        "tanh", "of hidden layers on vectors", words=("tanh", "relu", "elu", "gelu", "silu")
    )
    share_trunk: bool | str = flag(
        "auto", "by policy and value; auto: of cnn, lstm", "share_net", **SWITCH
    )
    log_std_init: float | str = flag(
        "auto", "first log of the noise; auto: 0, of gSDE -2", kind=float, words=AUTO
    )
    use_sde: bool = flag(
        False, "gSDE: noise that depends on the state and stays, not each step's own", kind=bool
    )
    sde_sample_freq: int = flag(
        -1, "steps that gSDE's noise stays; -1: a rollout", kind=int, low=-1
    )
    squash_actions: bool = flag(
        False, "tanh puts continuous actions into their bounds, not clipping", kind=bool
    )
    strict_spaces: bool = flag(
        False, "an observation outside of its space is an error, not a warning", kind=bool
    )
    fresh_env_per_episode: bool = flag(
        False, "make the environment anew for each, if it forgets nothing", kind=bool
    )
    step_timeout: float = flag(
        60.0, "seconds after which an environment's step counts as hung", **POSITIVE
    )
    reset_timeout: float = flag(120.0, "seconds after which its reset or start does", **POSITIVE)
    frame_stack: int = flag(4, "images that make an observation", high=100, **COUNT)
    screen_size: int = flag(84, "height and width that images are resized to", high=1024, **COUNT)
    frame_skip: int | str = flag(
        "auto", "frames to an action; auto: Atari 4, else 1", high=1000, words=AUTO, **COUNT
    )
    noop_max: int = flag(
        30, "Atari: most frames of doing nothing when a game starts", kind=int, low=0, high=1000
    )
    end_on_life_loss: bool = flag(
        False, "Atari: a lost life ends the episode, not the game", kind=bool
    )
    sticky_actions: float | str = flag(
        "auto", "Atari: chance to repeat; auto: the id's", words=AUTO, **SHARE
    )
    full_action_space: bool = flag(False, "Atari: all 18 actions, needed or not", kind=bool)
    inference: str = flag(
        "auto",
        "who acts; auto: learner for images on CUDA, without overlap",
        words=("auto", "worker", "learner"),
    )
    overlap: bool = flag(
        False, "collect the next rollout, by older weights, while learning", kind=bool
    )
    precision: str = flag(
        "auto", "on images; auto: bfloat16 if in hardware", words=("auto", "float32", "bfloat16")
    )
    device: str = flag(
        "cpu", "where the learner computes: cpu, cuda, cuda:N, mps or auto", kind=str
    )
    compile: bool = flag(False, "compile the loss by torch.compile, on CUDA", kind=bool)
    torch_deterministic: bool = flag(
        False, "only deterministic algorithms (it matters on CUDA)", kind=bool
    )
    logger: str = flag(
        "console",
        "where progress goes beside metrics.csv",
        kind=str,
        pattern=LOGGERS,
        form=SOME_LOGGERS,
    )
    histogram_every: int | None = flag(
        10, "iterations between histograms, in the last two", words=NONE, **COUNT
    )
    log_checkpoint: bool = flag(False, "give the last checkpoint to Weights & Biases", kind=bool)
    verbose: int = flag(
        1,
        "0: print nothing, 1: progress, 2: also every setting and metric",
        kind=int,
        low=0,
        high=2,
    )
    log_every: int | None = flag(None, "iterations between lines; none: 5 s", words=NONE, **COUNT)
    name: str | None = flag(
        None, "name of the run: folder in runs/, title in wandb", kind=str, words=NONE
    )
    run_dir: str | None = flag(
        None, "folder of the run; none: runs/<name or env-seed-time>", kind=str, words=NONE
    )
    resume: str | None = flag(
        None, "folder of the run to go on with; auto: run_dir, if begun", kind=str, words=RESUME
    )
    checkpoint_every: int = flag(
        100, "iterations between checkpoints; the last three and the best stay", **COUNT
    )
    eval_episodes: int = flag(
        20, "deterministic episodes of an evaluation; there is one at the end", kind=int, low=0
    )
    eval_every: int | None = flag(
        None, "iterations between others; best.safetensors", words=NONE, **COUNT
    )
    video_every: int | None = flag(
        None, "iterations between videos of an episode, in videos/", words=NONE, **COUNT
    )
    seeds: int = flag(
        1, "as many runs, from --seed on, each in a process and a folder of its own", **COUNT
    )
    report: bool = flag(True, "draw curve.png and write report.html at the end", kind=bool)
    debug: bool = flag(False, "show the traceback of an error", kind=bool)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"cpu|cuda(:\d+)?|mps|auto", self.device):
            raise ConfigError(f"--device={self.device}: give cpu, cuda, cuda:N, mps or auto")
        if isinstance(self.num_workers, int) and self.num_workers > self.num_envs:
            raise ConfigError(
                f"--num_workers={self.num_workers}: give at most --num_envs={self.num_envs}"
            )
        if self.overlap and (self.num_workers == 0 or self.inference == "learner"):
            raise ConfigError(
                "--overlap is for worker processes that act: give --num_workers=auto and --inference=worker"
            )
        if self.clip_rewards and self.normalize_rewards is True:
            raise ConfigError(
                "--normalize_rewards=True: leave it out with clipped ones, or give --clip_rewards=False"
            )
        minibatches = "batch_size" if self.batch_size else "num_minibatches"
        iteration = f"the {self.rollout_size} steps of an iteration (num_envs x num_steps)"
        if getattr(self, minibatches) > self.rollout_size:
            raise ConfigError(
                f"--{minibatches}={getattr(self, minibatches)}: give at most {iteration}"
            )
        if self.total_steps < self.rollout_size:
            raise ConfigError(f"--total_steps={self.total_steps}: give at least {iteration}")

    def __getstate__(self) -> dict[str, Any]:
        """All values, as JSON can have them; functions by name, for no other process need call them."""
        plain = lambda x: (
            f"{x.__module__}:{x.__qualname__}" if hasattr(x, "__qualname__") else repr(x)
        )  # noqa: E731
        return {
            name: plain(value) if callable(value) else value for name, value in vars(self).items()
        }

    @classmethod
    def names(cls, **metadata: Any) -> tuple[str, ...]:
        """Return the names of the flags with this metadata."""
        known: dict[str, tuple[str, ...]] = {
            "scope": ELSEWHERE,
            "per_host": ("num_workers", "run_dir", "resume"),
            "speed": (
                *ELSEWHERE,
                "seed",
                "total_steps",
                "num_iterations",
                "learning_rate",
                "eval_every",
                "num_workers",
            ),
        }
        (name,) = metadata
        return known[name]

    @property
    def rollout_size(self) -> int:
        """Transitions in an iteration."""
        return self.num_envs * self.num_steps

    @property
    def iterations(self) -> int:
        """Iterations of the whole run: as many whole rollouts as total_steps allows."""
        affordable = self.total_steps // self.rollout_size
        return min(affordable, self.num_iterations or affordable)


def load_preset(preset: str, env_name: str, family: str | None) -> dict[str, Any]:
    """The values of a file in ppo/config/presets: of the one that is named; for auto, of the environment's if it has one, else
    of its family's. Raises ConfigError for the name of none."""
    known = {path.stem: path for path in sorted(PRESETS.glob("*.json"))}
    path = known.get(env_name, known.get(family or "")) if preset == "auto" else known.get(preset)
    if path is None and preset not in ("auto", "none"):
        raise ConfigError(f"--preset={preset}: give auto, none, {', '.join(known)}")
    return json.loads(path.read_text()) if path else {}


def folder_to_resume(given: Mapping[str, str]) -> Path | None:
    """The folder of the run that flags ask to go on with, if they do: by its path, or its name in runs/. Raises
    ConfigError if there is no such folder, or if the flags contradict each other."""
    name, run_dir = given.get("resume", "none"), given.get("run_dir")
    if name == "auto":
        if not run_dir:
            raise ConfigError(
                "--resume=auto: give --run_dir as well, the folder of the run to begin or to go on with"
            )
        return Path(run_dir) if any(Path(run_dir).glob("checkpoints/0*")) else None
    if name == "none":
        return None
    if run_dir not in (None, name):
        raise ConfigError(
            f"--run_dir={run_dir}: leave it out, for the run goes on in --resume={name}"
        )
    found = run_folder(name)
    if found is None:
        raise ConfigError(f"--resume={name}: there is no such folder; give that of a run")
    return found


def run_folder(name: str) -> Path | None:
    """The folder of a run by its path, or by its name in runs/; None if there is none."""
    return next((path for path in (Path(name), Path("runs", name)) if path.is_dir()), None)
