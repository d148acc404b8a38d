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
# What --init_parts can take from another run: the prefix of the names in its checkpoint.
PARTS = {
    "policy": "model.policy_",
    "value": "model.value_",
    "normalizer": "normalize_observation.",
}
PART = "|".join(PARTS)
LINEAR = ("linear",)
Scheduled = str | Callable[..., float]


class EnvironmentFlags(Flags):
    """Environment and preprocessing."""

    env_name: str = fixed_flag(
        "LunarLander-v3",
        "Gymnasium id, module:id, or a class or function as module:Name or file.py:Name; also of "
        "EnvPool (EnvPool/ID), of a batch or of a team (docs/environments.md).",
        "env",
        "env_id",
        imports=True,
    )
    eval_env: str | None = flag(
        None,
        "Environment of evaluations and videos, observed and acted in alike; none: --env_name.",
        imports=True,
    )
    env_kwargs: Any = fixed_flag(
        "{}",
        "Keyword arguments of the environment; {9000+10*index} is evaluated for each, and entries "
        "of a list are assigned in turn.",
    )
    max_episode_steps: Count | None = fixed_flag(
        None, "Steps after which an episode is truncated; none: the registered limit."
    )
    wrapper: list[Call] = fixed_flag(
        (),
        "Wrapper class, with Python literals as arguments; repeat the flag to wrap that again.",
        imports=True,
    )
    num_envs: Count = fixed_flag(
        8, "Number of environments stepped in parallel; of a team, of agents."
    )
    normalize_observations: bool | Auto = fixed_flag(
        "auto",
        "Standardise observations by running mean and variance; auto: all but images.",
    )
    normalize_rewards: bool | Auto = fixed_flag(
        "auto",
        "Divide rewards by the running standard deviation of the return; auto: unless rewards are "
        "clipped or observations are images.",
    )
    normalize_keys: str | None = fixed_flag(
        None, "Comma-separated names of the parts to standardise; none: all but images."
    )
    reward_term: list[str] = fixed_flag(
        (),
        "Name of a number in each step's info to keep in the rollout for a learner of your own; "
        "repeat the flag for further ones.",
    )
    clip_rewards: bool = fixed_flag(False, "Replace each reward by its sign: -1, 0 or 1.")
    strict_spaces: bool = flag(
        False, "Raise an error, not a warning, for an observation outside of the space."
    )
    fresh_env_per_episode: bool = flag(
        False,
        "Create a new environment for each episode, for one that keeps state across resets.",
    )
    frame_stack: Count | Auto = fixed_flag(
        "auto",
        "Number of successive images or vectors in an observation; auto: 4 for images, else 1.",
        high=100,
    )
    screen_size: Count = fixed_flag(
        84, "Height and width in pixels to which images are resized.", high=1024
    )
    image: Literal["gray", "color", "categories"] | Auto = fixed_flag(
        "auto",
        "How images are seen: in gray or in color, resized, or as categories, one-hot; auto: as "
        "categories below 36 x 36, else in gray.",
    )
    frame_skip: Count | Auto = fixed_flag(
        "auto",
        "Number of frames for which each action is repeated; auto: 4 for Atari games, else 1.",
        "action_repeat",
        high=1000,
    )
    noop_max: int = fixed_flag(
        30,
        "Maximum of the random number of no-op frames at the start of an Atari game.",
        low=0,
        high=1000,
    )
    end_on_life_loss: bool = fixed_flag(
        False, "End the episode, but not the game, when a life is lost in an Atari game."
    )
    sticky_actions: Fraction | Auto = fixed_flag(
        "auto", "Probability that an Atari game repeats the last action; auto: that of its id."
    )
    full_action_space: bool = fixed_flag(
        False, "Use all 18 actions of an Atari game, including those without effect in it."
    )


class NetworkFlags(Flags):
    """Policy and value network."""

    model: ImportPath | Auto = fixed_flag(
        "auto",
        "Network, or import path of a subclass of ActorCritic; auto: cnn for images, else mlp.",
        words=MODELS,
        imports=True,
    )
    hidden_size: Count | Auto = fixed_flag(
        "auto", "Units per hidden layer; auto: the usual size of the model.", high=65536
    )
    num_layers: Count = fixed_flag(2, "Number of hidden layers for vectors.", high=100)
    policy_layers: Layers | None = fixed_flag(
        None,
        "Units of each hidden layer of the mlp's policy; none: --num_layers of --hidden_size.",
    )
    value_layers: Layers | None = fixed_flag(
        None,
        "Units of each hidden layer of the mlp's value; none: --num_layers of --hidden_size.",
    )
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = fixed_flag(
        "tanh", "Activation function of the hidden layers for vectors."
    )
    share_trunk: bool | Auto = fixed_flag(
        "auto",
        "Share the hidden layers of policy and value; auto: for images, lstm and gru.",
        "share_net",
    )
    log_std_init: float | Auto = flag(
        "auto",
        "Initial log standard deviation of continuous actions; auto: 0, or -2 with --use_sde.",
    )
    use_sde: bool = fixed_flag(
        False, "Explore by gSDE: noise that depends on the state and is kept for several steps."
    )
    sde_sample_freq: int = flag(
        -1, "Number of steps after which gSDE draws new noise; -1: once per rollout.", low=-1
    )
    squash_actions: bool = fixed_flag(
        False, "Bound continuous actions by tanh instead of by clipping."
    )


class FineTuningFlags(Flags):
    """Weights of another run."""

    init_from: str | None = fixed_flag(
        None, "Run or checkpoint whose weights a new run starts with; none: random weights."
    )
    init_parts: str = fixed_flag(
        ",".join(PARTS),
        "Parts to load from --init_from; reward statistics always start anew.",
        pattern=f"({PART})(,({PART}))*",
        form=f"some of {','.join(PARTS)}",
    )
    init_partial: bool = fixed_flag(
        False, "Load only tensors of --init_from whose shape fits, instead of refusing the others."
    )
    freeze: str | None = flag(
        None,
        "Comma-separated prefixes of the names of parameters that are not trained.",
        pattern=r"[\w.]+(,[\w.]+)*",
        form="names like policy_trunk,value_trunk",
    )
    critic_warmup: int = fixed_flag(
        0,
        "Iterations at the start in which only weights of the value are trained, and observation "
        "statistics that hold samples stay as they are.",
        low=0,
    )


class TeacherFlags(Flags):
    """A teacher."""

    teacher: str | None = flag(
        None,
        "Run or checkpoint of a policy whose distributions of actions are learned in the states "
        "that the student meets; none: no teacher.",
    )
    teacher_coef: float | Scheduled = live_flag(
        "linear:1",
        "Coefficient of the KL divergence of the policy from the teacher; linear: decays to 0 over "
        "the run, so that the student may become better than the teacher.",
        low=0,
        schedules=LINEAR,
    )
    teacher_parts: str | None = flag(
        None,
        "Comma-separated parts of observations that the teacher reads; none: all.",
    )
    teacher_model: ImportPath | None = flag(
        None, "Import path of the teacher's model if it is a class of yours.", imports=True
    )
    distill: bool = flag(
        False, "Learn the policy from the teacher alone, without policy loss and entropy bonus."
    )


class CloningFlags(Flags):
    """Demonstrations."""

    demonstrations: str | None = fixed_flag(
        None,
        "Episodes whose actions a new run learns to imitate before it trains; none: it begins from "
        "zero.",
        pattern=r"minari:.+|.+\.npz",
        form="FILE.npz or minari:ID",
    )
    clone_epochs: Count = fixed_flag(20, "Number of epochs over the demonstrations.")


class AlgorithmFlags(Flags):
    """PPO."""

    preset: str = fixed_flag(
        "auto", "Name of a set of tuned values; auto: that of the environment or its family."
    )
    seed: int = fixed_flag(0, "Random seed.", low=0, high=2**32 - 1)
    total_steps: int = flag(
        1_000_000,
        "Total number of environment steps, rounded down to whole rollouts; 0: clone "
        "--demonstrations only.",
        "total_timesteps",
        low=0,
    )
    num_iterations: Count | None = flag(
        None, "Maximum number of iterations; none: as many as fit in --total_steps."
    )
    num_steps: Count = fixed_flag(128, "Number of steps per environment in a rollout.")
    num_epochs: Count = live_flag(
        4, "Number of epochs over each rollout.", "ppo_epochs", "update_epochs"
    )
    num_minibatches: Count = flag(
        4, "Number of minibatches, and so of gradient steps, per epoch.", "num_batches"
    )
    batch_size: Count | None = flag(
        None,
        "Number of transitions per minibatch; none: as --num_minibatches gives.",
        "minibatch_size",
    )
    learning_rate: Positive | Scheduled = live_flag(
        2.5e-4,
        "Learning rate; linear: decays to 0 over the run, adaptive: follows the KL divergence.",
        "lr",
        high=1e30,
        schedules=(*LINEAR, "adaptive"),
    )
    optimizer: Call = fixed_flag(
        "torch.optim:Adam",
        "Optimizer class, with Python literals as arguments other than the learning rate.",
        imports=True,
    )
    learner: ImportPath | Auto = flag(
        "auto",
        "Subclass of ppo.Learner; auto: the fastest built-in one that supports the model.",
        imports=True,
    )
    callback: list[ImportPath] = flag(
        (),
        "Subclass of ppo.Callback; repeat the flag for several.",
        imports=True,
    )
    gamma: Fraction = flag(0.99, "Discount factor.")
    gae_lambda: Fraction = live_flag(0.95, "Lambda of generalized advantage estimation.", "lam")
    clip_coef: Positive | Scheduled = live_flag(
        0.1,
        "Clipping range of the probability ratio around 1; linear: decays to 0.",
        "epsilon",
        "clip_range",
        schedules=LINEAR,
    )
    clip_value_coef: Positive | Scheduled | Auto | None = flag(
        "auto",
        "Clipping range of the change of values; auto: --clip_coef, none: no clipping.",
        "clip_range_vf",
        schedules=LINEAR,
    )
    value_coef: float = live_flag(
        0.5, "Coefficient of the value loss.", "value_loss_coef", "vf_coef", low=0
    )
    entropy_coef: float | Scheduled = live_flag(
        0.01,
        "Coefficient of the entropy bonus; linear: decays to 0 over the run.",
        "ent_coef",
        low=0,
        schedules=LINEAR,
    )
    max_grad_norm: float = live_flag(
        0.5,
        "Maximum global norm of the gradient, to which larger ones are scaled; 0: no clipping.",
        low=0,
    )
    target_kl: Positive | None = live_flag(
        None, "Stop the epochs of an iteration when the KL divergence exceeds 1.5 times this."
    )
    normalize_advantages: Literal["minibatch", "rollout", "none"] = flag(
        "minibatch",
        "Standardise advantages within each minibatch, within the rollout, or not at all.",
    )
