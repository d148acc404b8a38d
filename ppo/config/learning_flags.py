"""Flags of what is learned and how: environment, network, algorithm."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from ppo.config.flags import (
    Auto,
    Call,
    Count,
    Flags,
    Fraction,
    ImportPath,
    Positive,
    fixed_flag,
    flag,
    live_flag,
)
from ppo.models import MODELS

Layers = Annotated[
    str, ("pattern", r"[1-9]\d{0,4}(,[1-9]\d{0,4}){0,99}"), ("form", "sizes like 256,128")
]
LINEAR = ("linear",)
_SIZES = [f"{model.hidden_size} for {name}" for name, model in MODELS.items()]
Scheduled = str | Callable[..., float]


class EnvironmentFlags(Flags):
    """Environment and preprocessing."""

    env_name: str = fixed_flag(
        "LunarLander-v3",
        "Environment: a gymnasium id, such as CartPole-v1 or package:Name-v0, or a class or "
        "function that makes one, or several at once, as module:Name or file.py:Name "
        "(docs/environments.md).",
        "env",
        "env_id",
        imports=True,
        common=True,
    )
    env_kwargs: Any = fixed_flag(
        "{}",
        "Keyword arguments of the environment; {index} and {9000+10*index} in a text stand for the "
        "environment's number, and the entries of a list are given to the environments in turn.",
    )
    num_envs: Count = fixed_flag(
        8, "Number of parallel environments; in multi-agent environments, of agents.", common=True
    )
    wrapper: list[Call] = fixed_flag(
        (),
        "Wrapper of the environment, with Python literals as arguments; repeat the flag for "
        "several, the innermost first.",
        imports=True,
    )
    max_episode_steps: Count | None = fixed_flag(
        None,
        "Time limit: steps after which an episode is truncated; none: the one that is registered "
        "with the environment's id.",
    )
    eval_env: str | None = flag(
        None,
        "Environment of evaluations and videos, with the same observation and action spaces; none: "
        "that of --env_name.",
        imports=True,
    )
    normalize_observations: bool | Auto = fixed_flag(
        "auto",
        "Normalise observations by their running mean and standard deviation, clipped at 10; auto: "
        "all but images.",
    )
    normalize_rewards: bool | Auto = fixed_flag(
        "auto",
        "Divide rewards by the running standard deviation of the discounted return, clipped at 10; "
        "auto: unless --clip_rewards is on or observations are images.",
    )
    clip_rewards: bool = fixed_flag(False, "Replace each reward by its sign: -1, 0 or 1.")
    image: Literal["gray", "color", "categories"] | Auto = fixed_flag(
        "auto",
        "How images are read: in gray or in color, resized, or as categories, one-hot; auto: as "
        "categories if smaller than 36 x 36 pixels, else in gray.",
    )
    screen_size: Count = fixed_flag(
        84, "Height and width in pixels to which images are resized.", high=1024
    )
    frame_stack: Count | Auto = fixed_flag(
        "auto",
        "Number of latest observations, images or vectors, that are stacked into one; auto: 4 for "
        "images, else 1.",
        high=100,
    )
    frame_skip: Count | Auto = fixed_flag(
        "auto",
        "Number of frames for which each action is repeated, summing rewards; auto: 4 for Atari "
        "games, else 1.",
        "action_repeat",
        high=1000,
    )
    noop_max: int = fixed_flag(
        30,
        "Atari: maximum number of no-op frames at the start of a game; the number is random.",
        low=0,
        high=1000,
    )
    end_on_life_loss: bool = fixed_flag(
        False, "Atari: end the episode, but not the game, when a life is lost, in training only."
    )
    sticky_actions: Fraction | Auto = fixed_flag(
        "auto", "Atari: probability that the last action is repeated; auto: that of the id."
    )
    full_action_space: bool = fixed_flag(
        False, "Atari: use all 18 actions, including those without effect in the game."
    )


class AlgorithmFlags(Flags):
    """PPO."""

    total_steps: int = flag(
        1_000_000,
        "Number of environment steps, of all environments together, rounded down to whole "
        "rollouts; 0: only what precedes training, and an evaluation.",
        "total_timesteps",
        low=0,
        common=True,
    )
    num_iterations: Count | None = flag(
        None,
        "Maximum number of iterations, of a rollout and its epochs each; none: as many as fit in "
        "--total_steps.",
    )
    seed: int = fixed_flag(
        0, "Random seed of weights, environments and actions.", low=0, high=2**32 - 1, common=True
    )
    learning_rate: Positive | Scheduled = live_flag(
        2.5e-4,
        "Learning rate; linear: decays to 0 over the run, adaptive: rises and falls to keep the KL "
        "divergence near --target_kl, or else 0.01.",
        "lr",
        high=1e30,
        schedules=(*LINEAR, "adaptive"),
        common=True,
    )
    num_steps: Count = fixed_flag(128, "Steps of each environment per rollout.")
    num_epochs: Count = live_flag(
        4, "Number of epochs over each rollout.", "ppo_epochs", "update_epochs"
    )
    num_minibatches: Count = flag(
        4, "Number of minibatches, and so of gradient steps, per epoch.", "num_batches"
    )
    batch_size: Count | None = flag(
        None,
        "Minibatch size in transitions; none: the rollout's size divided by --num_minibatches.",
        "minibatch_size",
    )
    gamma: Fraction = flag(0.99, "Discount factor.")
    gae_lambda: Fraction = live_flag(
        0.95, "Lambda of generalized advantage estimation (GAE).", "lam"
    )
    clip_coef: Positive | Scheduled = live_flag(
        0.1,
        "Clipping range of the probability ratio around 1; linear: decays to 0 over the run.",
        "epsilon",
        "clip_range",
        schedules=LINEAR,
    )
    clip_value_coef: Positive | Scheduled | Auto | None = flag(
        "auto",
        "Clipping range of the change of values; linear: decays to 0 over the run, auto: "
        "--clip_coef, none: no clipping.",
        "clip_range_vf",
        schedules=LINEAR,
    )
    normalize_advantages: Literal["minibatch", "rollout", "none"] = flag(
        "minibatch",
        "Normalise advantages within each minibatch, within the rollout, or not at all.",
    )
    entropy_coef: float | Scheduled = live_flag(
        0.01,
        "Coefficient of the entropy bonus; linear: decays to 0 over the run.",
        "ent_coef",
        low=0,
        schedules=LINEAR,
    )
    value_coef: float = live_flag(
        0.5,
        "Coefficient of the value loss, which is half the squared error.",
        "value_loss_coef",
        "vf_coef",
        low=0,
    )
    max_grad_norm: float = live_flag(
        0.5, "Maximum norm to which the gradient is clipped; 0: no clipping.", low=0
    )
    target_kl: Positive | None = live_flag(
        None,
        "End the epochs of an iteration when the approximate KL divergence exceeds 1.5 times this; "
        "none: never.",
    )
    optimizer: Call = fixed_flag(
        "torch.optim:Adam",
        "Optimizer class, with Python literals as arguments other than the learning rate.",
        imports=True,
    )
    learner: ImportPath | Auto = flag(
        "auto",
        "Subclass of ppo.Learner, for a loss or advantages of your own; auto: the fastest built-in "
        "one that supports the model.",
        imports=True,
    )
    callback: list[ImportPath] = flag(
        (),
        "Subclass of ppo.Callback, for code of your own during training; repeat the flag for "
        "several.",
        imports=True,
    )


class NetworkFlags(Flags):
    """Policy and value network."""

    model: ImportPath | Auto = fixed_flag(
        "auto",
        "Network, or import path of a subclass of ActorCritic; auto: cnn for images, else mlp.",
        words=MODELS,
        imports=True,
        common=True,
    )
    hidden_size: Count | Auto = fixed_flag(
        "auto",
        f"Units per hidden layer; auto: {', '.join(_SIZES)}.",
        high=65536,
    )
    num_layers: Count = fixed_flag(
        2, "Number of hidden layers for observations that are vectors.", high=100
    )
    policy_layers: Layers | None = fixed_flag(
        None,
        "Units of each hidden layer of the mlp's policy network; none: --num_layers of "
        "--hidden_size.",
    )
    value_layers: Layers | None = fixed_flag(
        None,
        "Units of each hidden layer of the mlp's value network; none: --num_layers of "
        "--hidden_size.",
    )
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = fixed_flag(
        "tanh", "Activation function of these hidden layers."
    )
    share_trunk: bool | Auto = fixed_flag(
        "auto",
        "Share the hidden layers of policy and value; auto: for images, and with memory.",
        "share_net",
    )
    log_std_init: float | Auto = flag(
        "auto",
        "Initial log standard deviation of continuous actions; auto: 0.",
    )
    squash_actions: bool = fixed_flag(
        False, "Bound continuous actions by tanh instead of by clipping."
    )
    scale_actions: bool = fixed_flag(
        True,
        "Scale continuous actions from [-1, 1] to bounds that a standard normal does not fit, such "
        "as those of [300, 500], before they are clipped.",
    )
