"""Flags of what is learned and how: environment, network, algorithm."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from ppo.config.flags import Auto, Count, Flags, Fraction, Positive, fixed_flag, flag, live_flag
from ppo.models import MODELS

IMPORTED = r"([\w.]+|.+\.py):\w+"
ImportPath = Annotated[str, ("pattern", IMPORTED), ("form", "module:Name or file.py:Name")]
Call = Annotated[
    str, ("pattern", rf"{IMPORTED}(\(.*\))?"), ("form", "module:Name(name=value, ...)")
]
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
        "A gymnasium id, module:id, or a class or function as module:Name or file.py:Name.",
        "env",
        "env_id",
        imports=True,
    )
    eval_env: str | None = flag(
        None,
        "The environment of evaluations and videos, with the same spaces; none is --env_name.",
        imports=True,
    )
    env_kwargs: Any = fixed_flag(
        "{}",
        "Arguments of the environment, where {9000+10*index} counts; a list is dealt over all.",
    )
    max_episode_steps: Count | None = fixed_flag(
        None, "Steps after which an episode is truncated; none is what the environment's id says."
    )
    wrapper: list[Call] = fixed_flag(
        (),
        "Wrapper, with Python literals as arguments; repeat it for further ones around that.",
        imports=True,
    )
    num_envs: Count = fixed_flag(8, "Number of environments stepped in parallel.")
    normalize_observations: bool | Auto = fixed_flag(
        "auto",
        "Standardise observations by running mean and variance; auto does so for all but images.",
    )
    normalize_rewards: bool | Auto = fixed_flag(
        "auto",
        "Divide rewards by the running deviation of the return; auto does not if they are clipped, "
        "nor for images.",
    )
    normalize_keys: str | None = fixed_flag(
        None, "Names, separated by commas, of the parts to standardise; none is all but images."
    )
    clip_rewards: bool = fixed_flag(False, "Learn from the sign of each reward: -1, 0 or 1.")
    strict_spaces: bool = flag(
        False, "Treat an observation outside of the environment's space as an error, not a warning."
    )
    fresh_env_per_episode: bool = flag(
        False,
        "Make the environment anew for each episode, for one that keeps something over a reset.",
    )
    frame_stack: Count | Auto = fixed_flag(
        "auto",
        "Successive images or vectors that make up an observation; auto is 4 for images, else 1.",
        high=100,
    )
    screen_size: Count = fixed_flag(
        84, "Height and width in pixels to which images are resized.", high=1024
    )
    image: Literal["pixels", "categories"] | Auto = fixed_flag(
        "auto",
        "What images hold: pixels are resized and made gray, categories become zeros and ones; "
        "auto is categories below 36 x 36.",
    )
    frame_skip: Count | Auto = fixed_flag(
        "auto",
        "Number of frames for which each action is repeated; auto is 4 for Atari games, else 1.",
        "action_repeat",
        high=1000,
    )
    noop_max: int = fixed_flag(
        30,
        "Greatest number, which is random, of idle frames at the start of an Atari game.",
        low=0,
        high=1000,
    )
    end_on_life_loss: bool = fixed_flag(
        False, "End the episode, but not the game, when a life is lost in an Atari game."
    )
    sticky_actions: Fraction | Auto = fixed_flag(
        "auto", "Probability that an Atari game repeats the last action; auto is what its id says."
    )
    full_action_space: bool = fixed_flag(
        False, "Offer all 18 actions of an Atari game, also those that do nothing in it."
    )


class NetworkFlags(Flags):
    """Policy and value network."""

    model: ImportPath | Auto = fixed_flag(
        "auto",
        "The network, or the path of a class derived from ActorCritic; auto is cnn for images, "
        "else mlp.",
        words=MODELS,
        imports=True,
    )
    hidden_size: Count | Auto = fixed_flag(
        "auto", "Units in each hidden layer; auto is the usual size of the model.", high=65536
    )
    num_layers: Count = fixed_flag(2, "Number of hidden layers that read vectors.", high=100)
    policy_layers: Layers | None = fixed_flag(
        None,
        "Units of each hidden layer of the mlp's policy; none is --num_layers of --hidden_size.",
    )
    value_layers: Layers | None = fixed_flag(
        None,
        "Units of each hidden layer of the mlp's value; none is --num_layers of --hidden_size.",
    )
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = fixed_flag(
        "tanh", "Activation function of the hidden layers that read vectors."
    )
    share_trunk: bool | Auto = fixed_flag(
        "auto",
        "Share the hidden layers between policy and value; auto does so for images, lstm and gru.",
        "share_net",
    )
    log_std_init: float | Auto = flag(
        "auto", "Initial log deviation of continuous actions; auto is 0, or -2 with --use_sde."
    )
    use_sde: bool = fixed_flag(
        False, "Explore by gSDE: noise that depends on the state and is kept for several steps."
    )
    sde_sample_freq: int = flag(
        -1, "Number of steps after which gSDE draws new noise; -1 is once in each rollout.", low=-1
    )
    squash_actions: bool = fixed_flag(
        False, "Bring continuous actions into their bounds by tanh instead of by clipping."
    )


class FineTuningFlags(Flags):
    """Weights of another run."""

    init_from: str | None = fixed_flag(
        None, "Run or checkpoint whose weights a new run begins with; none draws them at random."
    )
    init_parts: str = fixed_flag(
        ",".join(PARTS),
        "What is taken from --init_from; reward statistics always begin anew.",
        pattern=f"({PART})(,({PART}))*",
        form=f"some of {','.join(PARTS)}",
    )
    init_partial: bool = fixed_flag(
        False, "Take what fits from --init_from, where the rest has another shape."
    )
    freeze: str | None = flag(
        None,
        "Prefixes of the names of parameters that are not trained.",
        pattern=r"[\w.]+(,[\w.]+)*",
        form="names like policy_trunk,value_trunk",
    )


class AlgorithmFlags(Flags):
    """PPO."""

    preset: str = fixed_flag(
        "auto", "Name of a set of tuned values; auto is that of the environment or its family."
    )
    seed: int = fixed_flag(0, "Seed of all random numbers.", low=0, high=2**32 - 1)
    total_steps: Count = flag(
        1_000_000,
        "Number of steps of all environments to train for, rounded down to whole rollouts.",
        "total_timesteps",
    )
    num_iterations: Count | None = flag(
        None, "Greatest number of iterations to train for; none is as many as --total_steps allows."
    )
    num_steps: Count = fixed_flag(128, "Number of steps of each environment in a rollout.")
    num_epochs: Count = live_flag(
        4, "Number of passes over each rollout.", "ppo_epochs", "update_epochs"
    )
    num_minibatches: Count = flag(
        4, "Number of minibatches, and so of gradient steps, in an epoch.", "num_batches"
    )
    batch_size: Count | None = flag(
        None,
        "Number of transitions in a minibatch, at most all; none follows from --num_minibatches.",
        "minibatch_size",
    )
    learning_rate: Positive | Scheduled = live_flag(
        2.5e-4,
        "Learning rate; linear: falls to 0 over the run, adaptive: follows the KL divergence.",
        "lr",
        high=1e30,
        schedules=(*LINEAR, "adaptive"),
    )
    optimizer: ImportPath = fixed_flag(
        "torch.optim:Adam",
        "Import path of the optimizer; others than Adam have their own default settings.",
        imports=True,
    )
    learner: ImportPath | Auto = flag(
        "auto",
        "Class derived from ppo.Learner; auto is the fastest built-in one that fits the model.",
        imports=True,
    )
    callback: list[ImportPath] = flag(
        (),
        "Class derived from ppo.Callback that watches the run; repeat it for further ones.",
        imports=True,
    )
    gamma: Fraction = flag(0.99, "Discount factor of rewards per step.")
    gae_lambda: Fraction = live_flag(
        0.95, "Trace decay of generalized advantage estimation.", "lam"
    )
    clip_coef: Positive | Scheduled = live_flag(
        0.1,
        "Range around 1 to which the ratio of probabilities is clipped; linear: falls to 0.",
        "epsilon",
        "clip_range",
        schedules=LINEAR,
    )
    clip_value_coef: Positive | Scheduled | Auto | None = flag(
        "auto",
        "Range to which the change of a value is clipped; auto is --clip_coef, none does not.",
        "clip_range_vf",
        schedules=LINEAR,
    )
    value_coef: float = live_flag(
        0.5, "Weight of the value loss.", "value_loss_coef", "vf_coef", low=0
    )
    entropy_coef: float | Scheduled = live_flag(
        0.01,
        "Weight of the entropy bonus; linear: lets it fall to 0 over the run.",
        "ent_coef",
        low=0,
        schedules=LINEAR,
    )
    max_grad_norm: float = live_flag(
        0.5,
        "Greatest global norm of the gradient, to which larger ones are scaled; 0 does not clip.",
        low=0,
    )
    target_kl: Positive | None = live_flag(
        None, "Stop an iteration's epochs when the KL divergence exceeds 1.5 times this."
    )
    normalize_advantages: Literal["minibatch", "rollout", "none"] = flag(
        "minibatch", "Set of transitions within which advantages are standardised."
    )
