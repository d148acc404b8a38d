"""What a run is made of: one frozen, validated dataclass, from which the command line is derived."""

import argparse
import dataclasses
import difflib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

PRESETS = Path(__file__).parent / "presets"
BOOLEAN = ("true", "false")
AUTO = ("auto",)
BOOLEAN_AUTO = (*BOOLEAN, "auto")
BOOLEANS = (BOOLEAN, BOOLEAN_AUTO)
NONE = ("none",)
MODELS = ("auto", "mlp", "cnn", "cnn_small", "impala", "lstm")
PATH = r"[\w.]+:\w+"
LINEAR = ("linear",)
RATES = ("linear", "adaptive")
AUTO_NONE = ("auto", "none")
Schedule = float | str | Callable[[float], float]
LIMITS = {"low": "from", "above": "above", "high": "up to"}


class ConfigError(ValueError):
    """Values that no run can start from; the message names the flag and the fix."""


def flag(default: Any, help: str, *aliases: str, kind: type | None = None, **limits: Any) -> Any:
    """A field of Config that takes values of a kind within limits (low, above, high, pattern), or one of some words, or
    such a value by one of some schedules."""
    limits = {"words": (), "schedules": (), **limits, "help": help, "aliases": aliases, "kind": kind}
    return field(default=default, metadata=limits)


def scheduled(value: Any, remaining: float) -> Any:
    """What a schedule comes to when remaining (1 at first, towards 0) of the iterations are left: a function of that,
    "linear:x" for x * remaining, "adaptive:x" for x at first, or a number or None as it is."""
    if value is None or callable(value):
        return value and value(remaining)
    word, _, number = str(value).rpartition(":")
    return float(number) * (remaining if word == "linear" else 1)


@dataclass(frozen=True)
class Config:
    """Every choice of a run. Raises ConfigError if a value is not what its flag takes, or if two contradict each other.
    The plain defaults are those of Baselines' PPO2 with normalisation."""

    env_name: str = flag("LunarLander-v3", "gymnasium id, module:id or module:Class", "env", "env_id", kind=str)
    env_kwargs: Any = flag("{}", "arguments of the environment", kind=dict)
    model: str = flag("auto", "network, or one's own; auto: mlp, cnn for images", kind=str, pattern=PATH, words=MODELS)
    preset: str = flag("auto", "tuned values: auto (the environment's or family's, if any), none, or a name", kind=str)
    seed: int = flag(0, "seed of everything random", kind=int, low=0, high=2**32 - 1)
    total_steps: int = flag(1_000_000, "environment steps to train for", "total_timesteps", kind=int, low=1)
    num_iterations: int | None = flag(None, "most iterations to train for", kind=int, low=1, words=NONE)
    num_envs: int = flag(8, "environments stepped in parallel", kind=int, low=1)
    num_workers: int | str = flag("auto", "processes that step them; 0: this one", kind=int, low=0, words=AUTO)
    num_steps: int = flag(128, "steps of each environment in an iteration", kind=int, low=1)
    num_epochs: int = flag(4, "passes over each rollout", "ppo_epochs", "update_epochs", kind=int, low=1)
    num_minibatches: int = flag(4, "gradient steps in a pass", "num_batches", kind=int, low=1)
    batch_size: int | None = flag(None, "or the transitions in one", "minibatch_size", kind=int, low=1, words=NONE)
    learning_rate: Schedule = flag(2.5e-4, "step size", "lr", kind=float, above=0, high=1e30, schedules=RATES)
    optimizer: str = flag("torch.optim:Adam", "class; others than Adam by their defaults", kind=str, pattern=PATH)
    gamma: float = flag(0.99, "discount per step", kind=float, low=0, high=1)
    gae_lambda: float = flag(0.95, "trace decay of the advantage estimator", "lam", kind=float, low=0, high=1)
    clip_coef: Schedule = flag(0.1, "of policy ratios", "epsilon", "clip_range", kind=float, above=0, schedules=LINEAR)
    clip_value_coef: Schedule | None = flag(
        "auto", "of values; auto: clip_coef", "clip_range_vf", kind=float, above=0, words=AUTO_NONE, schedules=LINEAR
    )
    value_coef: float = flag(0.5, "weight of the value loss", "value_loss_coef", "vf_coef", kind=float, low=0)
    entropy_coef: Schedule = flag(0.01, "weight of the entropy bonus", "ent_coef", kind=float, low=0, schedules=LINEAR)
    max_grad_norm: float = flag(0.5, "gradients' global norm is clipped to this; 0: not clipped", kind=float, low=0)
    target_kl: float | None = flag(None, "a KL above 1.5 x this ends the passes", kind=float, above=0, words=NONE)
    normalize_advantages: str = flag(
        "minibatch", "set that they are standardised in", words=("minibatch", "rollout", "none")
    )
    normalize_observations: bool | str = flag("auto", "standardise observations; auto: not images", words=BOOLEAN_AUTO)
    normalize_rewards: bool | str = flag(
        "auto", "divide rewards by the running deviation of returns; auto: not of images or clipped", words=BOOLEAN_AUTO
    )
    clip_rewards: bool = flag(False, "learn from the sign of rewards", words=BOOLEAN)
    hidden_size: int | str = flag(
        "auto", "units in a hidden layer; auto: the model's", kind=int, low=1, high=65536, words=AUTO
    )
    num_layers: int = flag(2, "hidden layers on vectors", kind=int, low=1, high=100)
    activation: str = flag("tanh", "of hidden layers on vectors", words=("tanh", "relu", "elu", "gelu", "silu"))
    share_trunk: bool | str = flag("auto", "by policy and value; auto: of cnn, lstm", "share_net", words=BOOLEAN_AUTO)
    log_std_init: float | str = flag("auto", "first log of the noise; auto: 0, of gSDE -2", kind=float, words=AUTO)
    use_sde: bool = flag(False, "gSDE: noise that depends on the state and stays, not each step's own", words=BOOLEAN)
    sde_sample_freq: int = flag(-1, "steps that gSDE's noise stays; -1: a rollout", kind=int, low=-1)
    squash_actions: bool = flag(False, "tanh puts continuous actions into their bounds, not clipping", words=BOOLEAN)
    frame_stack: int = flag(4, "images that make an observation", kind=int, low=1, high=100)
    screen_size: int = flag(84, "height and width that images are resized to", kind=int, low=1, high=1024)
    frame_skip: int | str = flag(
        "auto", "frames to an action; auto: Atari 4, else 1", kind=int, low=1, high=1000, words=AUTO
    )
    noop_max: int = flag(30, "Atari: most frames of doing nothing when a game starts", kind=int, low=0, high=1000)
    end_on_life_loss: bool = flag(False, "Atari: a lost life ends the episode, not the game", words=BOOLEAN)
    sticky_actions: float | str = flag(
        "auto", "Atari: chance to repeat; auto: the id's", kind=float, low=0, high=1, words=AUTO
    )
    full_action_space: bool = flag(False, "Atari: all 18 actions, needed or not", words=BOOLEAN)
    precision: str = flag("auto", "on images; auto: bfloat16 if in hardware", words=("auto", "float32", "bfloat16"))
    device: str = flag("cpu", "where the learner computes: cpu, cuda, cuda:N, mps or auto", kind=str)
    torch_deterministic: bool = flag(False, "only deterministic algorithms (it matters on CUDA)", words=BOOLEAN)
    logger: str = flag("console", "where progress is shown", words=("console", "wandb", "none"))
    verbose: int = flag(1, "0: print nothing, 1: progress, 2: also every setting and metric", kind=int, low=0, high=2)
    log_every: int | None = flag(None, "iterations between lines; none: 5 s", kind=int, low=1, words=NONE)
    name: str | None = flag(None, "name of the run: folder in runs/, title in wandb", kind=str, words=NONE)
    run_dir: str | None = flag(None, "folder of the run; none: runs/<name or env-seed-time>", kind=str, words=NONE)
    checkpoint_every: int = flag(100, "iterations between checkpoints", kind=int, low=1)
    eval_episodes: int = flag(20, "deterministic episodes of an evaluation; there is one at the end", kind=int, low=0)
    eval_every: int | None = flag(None, "iterations between others; best.safetensors", kind=int, low=1, words=NONE)
    debug: bool = flag(False, "show the traceback of an error", words=BOOLEAN)

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            object.__setattr__(self, option.name, _convert(option, getattr(self, option.name)))
        if not re.fullmatch(r"cpu|cuda(:\d+)?|mps|auto", self.device):
            raise ConfigError(f"--device={self.device}: give cpu, cuda, cuda:N, mps or auto")
        if isinstance(self.num_workers, int) and self.num_workers > self.num_envs:
            raise ConfigError(f"--num_workers={self.num_workers}: give at most --num_envs={self.num_envs}")
        if self.clip_rewards and self.normalize_rewards is True:
            raise ConfigError("--normalize_rewards=True: leave it out with clipped ones, or give --clip_rewards=False")
        iteration = f"the {self.rollout_size} steps of an iteration (num_envs x num_steps)"
        if self.num_minibatches > self.rollout_size and not self.batch_size:
            raise ConfigError(f"--num_minibatches={self.num_minibatches}: give at most {iteration}")
        if (self.batch_size or 0) > self.rollout_size:
            raise ConfigError(f"--batch_size={self.batch_size}: give at most {iteration}")
        if self.total_steps < self.rollout_size:
            raise ConfigError(f"--total_steps={self.total_steps}: give at least {iteration}")

    def __getstate__(self) -> dict[str, Any]:
        """All values, as JSON can have them; functions by name, for no other process need call them."""
        plain = lambda x: f"{x.__module__}:{x.__qualname__}" if hasattr(x, "__qualname__") else repr(x)  # noqa: E731
        return {name: plain(value) if callable(value) else value for name, value in vars(self).items()}

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
    """The values of a file in ppo/presets: of the one that is named; for auto, of the environment's if it has one, else
    of its family's. Raises ConfigError for the name of none."""
    known = {path.stem: path for path in sorted(PRESETS.glob("*.json"))}
    path = known.get(env_name, known.get(family or "")) if preset == "auto" else known.get(preset)
    if path is None and preset not in ("auto", "none"):
        raise ConfigError(f"--preset={preset}: give auto, none, {', '.join(known)}")
    return json.loads(path.read_text()) if path else {}


def parse_flags(arguments: Sequence[str]) -> dict[str, str]:
    """The texts that a command line gives, by field name, for Config to convert. Prints the help if asked to. Raises
    ConfigError for what is no flag."""
    parser = _Parser(prog="main.py", description="Train PPO on a gymnasium environment.", allow_abbrev=False)
    for option in dataclasses.fields(Config):
        name, names = option.name, [f"--{name}" for name in (option.name, *option.metadata["aliases"])]
        default = "none" if option.default is None else option.default
        help = f"{option.metadata['help']}; {' or '.join(_expected(option))} (default: {default})"
        if option.metadata["words"] in BOOLEANS:
            parser.add_argument(*names, dest=name, nargs="?", const="true", metavar="BOOL", help=help)
            parser.add_argument(f"--no_{name}", dest=name, action="store_const", const="false", help=argparse.SUPPRESS)
        else:
            parser.add_argument(*names, dest=name, metavar="VALUE", help=help)
    arguments = [re.sub(r"^--[^=]+", lambda name: "--" + name[0][2:].replace("-", "_"), a) for a in arguments]
    given = vars(parser.parse_args(arguments))
    return {name: text for name, text in given.items() if text is not None}


class _Parser(argparse.ArgumentParser):
    """argparse with errors of one sentence each, naming the nearest flag where one is unknown."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: ([^\s=]*)", message)
        if not unknown:
            raise ConfigError(message.removeprefix("argument "))
        near = difflib.get_close_matches(unknown[1], self._option_string_actions, n=1)
        hint = f"did you mean {near[0]}?" if near else "see --help"
        raise ConfigError(f"unknown flag {unknown[1]}: {hint}")


def _convert(option: Field, value: Any) -> Any:
    """A value, or its text, as what the field holds. Raises ConfigError if the field cannot hold it."""
    kind, words, limits = option.metadata["kind"], option.metadata["words"], option.metadata
    text = str(value)
    word = {"1": "true", "0": "false"}.get(text, text.lower()) if words in BOOLEANS else text.lower()
    if word in words:
        return {"none": None, "true": True, "false": False}.get(word, word) if kind or words in BOOLEANS else word
    schedule, _, start = text.rpartition(":")
    if callable(value) and limits["schedules"]:
        return value
    if schedule in limits["schedules"]:
        return f"{schedule}:{_convert(option, start)}"
    try:
        if kind is dict:
            return dict(json.loads(value) if isinstance(value, str) else value)
        number = float(text) if kind in (int, float) else 0.0
        in_limits = limits.get("low", number) <= number <= limits.get("high", number) and math.isfinite(number)
        if kind is str and not re.fullmatch(limits.get("pattern", ".+"), text):
            in_limits = False
        if in_limits and number > limits.get("above", -math.inf) and (kind is not int or number.is_integer()):
            return kind(number) if kind is int and not text.isdigit() else kind(text)
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"--{option.name}={text}: give {' or '.join(_expected(option))}")


def _expected(option: Field) -> list[str]:
    """What a field holds, in words."""
    kind, limits = option.metadata["kind"], option.metadata
    bounds = "".join(f" {word} {limits[limit]}" for limit, word in LIMITS.items() if limit in limits)
    names = {int: "a whole number", float: "a number", str: "a text", dict: 'JSON like {"name": 1}', None: ""}
    name = "module:Name" if "pattern" in limits else names[kind]
    schedules = [f"{schedule}:<number>" for schedule in limits["schedules"]]
    return [text for text in (name + bounds, *schedules, *limits["words"]) if text]
