"""Flags as keyword arguments, for editors and type checkers.

Written by python -m tests.flag_types, from the fields of ppo.config.config.Config.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal

from typing_extensions import TypedDict

Text = str | PathLike[str]
Schedule = Callable[[float], float]  # of the share of the run that is left


class CommonFlags(TypedDict, total=False):
    """Flags that all functions take by name."""

    env_kwargs: dict[str, Any] | list[dict[str, Any]] | str
    """Keyword arguments of the environment; {9000+10*index} is evaluated for each, and entries of a
    list are assigned in turn."""

    max_episode_steps: int | None
    """Steps after which an episode is truncated; none: the registered limit."""

    wrapper: str | Sequence[str]
    """Wrapper class, with Python literals as arguments; repeat the flag to wrap that again."""

    num_envs: int
    """Number of environments stepped in parallel; of a team, of agents."""

    normalize_observations: bool | Literal["auto"]
    """Standardise observations by running mean and variance; auto: all but images."""

    normalize_rewards: bool | Literal["auto"]
    """Divide rewards by the running standard deviation of the return; auto: unless rewards are
    clipped or observations are images."""

    normalize_keys: Text | None
    """Comma-separated names of the parts to standardise; none: all but images."""

    reward_term: str | Sequence[str]
    """Name of a number in each step's info to keep in the rollout for a learner of your own; repeat
    the flag for further ones."""

    clip_rewards: bool
    """Replace each reward by its sign: -1, 0 or 1."""

    strict_spaces: bool
    """Raise an error, not a warning, for an observation outside of the space."""

    fresh_env_per_episode: bool
    """Create a new environment for each episode, for one that keeps state across resets."""

    frame_stack: int | Literal["auto"]
    """Number of successive images or vectors in an observation; auto: 4 for images, else 1."""

    screen_size: int
    """Height and width in pixels to which images are resized."""

    image: Literal["gray", "color", "categories", "auto"]
    """How images are seen: in gray or in color, resized, or as categories, one-hot; auto: as
    categories below 36 x 36, else in gray."""

    frame_skip: int | Literal["auto"]
    """Number of frames for which each action is repeated; auto: 4 for Atari games, else 1."""

    noop_max: int
    """Maximum of the random number of no-op frames at the start of an Atari game."""

    end_on_life_loss: bool
    """End the episode, but not the game, when a life is lost in an Atari game."""

    sticky_actions: float | Literal["auto"]
    """Probability that an Atari game repeats the last action; auto: that of its id."""

    full_action_space: bool
    """Use all 18 actions of an Atari game, including those without effect in it."""

    hidden_size: int | Literal["auto"]
    """Units per hidden layer; auto: the usual size of the model."""

    num_layers: int
    """Number of hidden layers for vectors."""

    policy_layers: Text | None
    """Units of each hidden layer of the mlp's policy; none: --num_layers of --hidden_size."""

    value_layers: Text | None
    """Units of each hidden layer of the mlp's value; none: --num_layers of --hidden_size."""

    activation: Literal["tanh", "relu", "elu", "gelu", "silu"]
    """Activation function of the hidden layers for vectors."""

    share_trunk: bool | Literal["auto"]
    """Share the hidden layers of policy and value; auto: for images, lstm and gru."""

    log_std_init: float | Literal["auto"]
    """Initial log standard deviation of continuous actions; auto: 0, or -2 with --use_sde."""

    use_sde: bool
    """Explore by gSDE: noise that depends on the state and is kept for several steps."""

    sde_sample_freq: int
    """Number of steps after which gSDE draws new noise; -1: once per rollout."""

    squash_actions: bool
    """Bound continuous actions by tanh instead of by clipping."""

    init_from: Text | None
    """Run or checkpoint whose weights a new run starts with; none: random weights."""

    init_parts: Text
    """Parts to load from --init_from; reward statistics always start anew."""

    init_partial: bool
    """Load only tensors of --init_from whose shape fits, instead of refusing the others."""

    freeze: Text | None
    """Comma-separated prefixes of the names of parameters that are not trained."""

    critic_warmup: int
    """Iterations at the start in which only weights of the value are trained, and observation
    statistics that hold samples stay as they are."""

    demonstrations: Text | None
    """Episodes whose actions a new run learns to imitate before it trains; none: it begins from
    zero."""

    clone_epochs: int
    """Number of epochs over the demonstrations."""

    teacher: Text | None
    """Run or checkpoint of a policy whose distributions of actions are learned in the states that
    the student meets; none: no teacher."""

    teacher_coef: float | str | Schedule
    """Coefficient of the KL divergence of the policy from the teacher; linear: decays to 0 over the
    run, so that the student may become better than the teacher."""

    teacher_parts: Text | None
    """Comma-separated parts of observations that the teacher reads; none: all."""

    teacher_model: Text | None
    """Import path of the teacher's model if it is a class of yours."""

    distill: bool
    """Learn the policy from the teacher alone, without policy loss and entropy bonus."""

    preset: Text
    """Name of a set of tuned values; auto: that of the environment or its family."""

    seed: int
    """Random seed."""

    total_steps: int
    """Total number of environment steps, rounded down to whole rollouts; 0: clone --demonstrations
    only."""

    num_iterations: int | None
    """Maximum number of iterations; none: as many as fit in --total_steps."""

    num_steps: int
    """Number of steps per environment in a rollout."""

    num_epochs: int
    """Number of epochs over each rollout."""

    num_minibatches: int
    """Number of minibatches, and so of gradient steps, per epoch."""

    batch_size: int | None
    """Number of transitions per minibatch; none: as --num_minibatches gives."""

    learning_rate: float | str | Schedule
    """Learning rate; linear: decays to 0 over the run, adaptive: follows the KL divergence."""

    optimizer: Text
    """Optimizer class, with Python literals as arguments other than the learning rate."""

    gamma: float
    """Discount factor."""

    gae_lambda: float
    """Lambda of generalized advantage estimation."""

    clip_coef: float | str | Schedule
    """Clipping range of the probability ratio around 1; linear: decays to 0."""

    clip_value_coef: float | Literal["auto"] | str | Schedule | None
    """Clipping range of the change of values; auto: --clip_coef, none: no clipping."""

    value_coef: float
    """Coefficient of the value loss."""

    entropy_coef: float | str | Schedule
    """Coefficient of the entropy bonus; linear: decays to 0 over the run."""

    max_grad_norm: float
    """Maximum global norm of the gradient, to which larger ones are scaled; 0: no clipping."""

    target_kl: float | None
    """Stop the epochs of an iteration when the KL divergence exceeds 1.5 times this."""

    normalize_advantages: Literal["minibatch", "rollout", "none"]
    """Standardise advantages within each minibatch, within the rollout, or not at all."""

    num_workers: int | Literal["auto"]
    """Number of processes that step the environments; 0: the trainer's own, auto: one per core."""

    inference: Literal["auto", "worker", "learner"]
    """Where actions are computed; auto: learner for images on CUDA without --overlap."""

    overlap: bool
    """Collect the next rollout while learning, with weights that are one update older."""

    precision: Literal["auto", "float32", "bfloat16"]
    """Floating-point type of networks; auto: bfloat16 for images if the hardware supports it."""

    device: Text
    """Device of the learner; auto: the fastest one that suits the network."""

    compile: bool
    """Compile the loss by torch.compile, on CUDA only."""

    torch_deterministic: bool
    """Use only deterministic algorithms in torch; on the CPU all are."""

    step_timeout: float
    """Seconds without a finished step after which a worker is replaced."""

    reset_timeout: float
    """Seconds without a finished reset, or start, after which a worker is replaced."""

    name: Text | None
    """Name of the run and of its folder in runs/; none: environment, seed and time."""

    run_dir: Text | None
    """Folder of the run, which must be new or empty; none: runs/NAME."""

    resume: Text | None
    """Folder or name of the run to resume; auto: --run_dir if it has a checkpoint."""

    seeds: int
    """Number of runs with successive seeds, each in its own process and folder."""

    checkpoint_every: int
    """Iterations between checkpoints, at most ten minutes; the last three and the best are kept."""

    keep_every: int | None
    """Iterations between checkpoints that are kept for good, in milestones/; none: none are."""

    eval_episodes: int
    """Number of episodes per evaluation, with the most likely actions; the run ends with one."""

    eval_max_steps: int
    """Steps after which an evaluation episode is cut off; its return so far counts."""

    eval_every: int | None
    """Iterations between evaluations, of which the best is kept; none: only at the end."""

    best_by: Text | None
    """Metric whose highest value is saved as best.safetensors; none: that of --eval_every."""

    stop_when: Text | None
    """Condition that ends the run, such as env/success_rate>0.9, a mean over 100 episodes;
    solved>=200: the mean return of an evaluation, solved: the same with the environment's
    reward_threshold."""

    max_time: Text | None
    """Time after which the run ends, including the time before it was resumed."""

    patience: int | None
    """Iterations without a new highest value of --best_by after which the run ends."""

    logger: str | Sequence[str]
    """Loggers of metrics, in addition to metrics.csv, or a subclass of ppo.Logger, with Python
    literals as arguments; repeat the flag for several."""

    log_every: int | None
    """Iterations between lines on the console; none: a line every 5 seconds."""

    verbose: int
    """Verbosity: 0 nothing, 1 progress, 2 also every setting and metric."""

    show: Text | None
    """Comma-separated extra metrics to print, such as env/success_rate."""

    histogram_every: int | None
    """Iterations between histograms in TensorBoard and Weights & Biases; none: no histograms."""

    wandb_project: Text | None
    """Project on Weights & Biases; none: that of the environment variable WANDB_PROJECT."""

    wandb_entity: Text | None
    """Team or user on Weights & Biases; none: your default."""

    wandb_tags: Text | None
    """Comma-separated tags, in addition to environment, model and preset."""

    log_checkpoint: bool
    """Upload the last checkpoint to Weights & Biases."""

    video_every: int | None
    """Iterations between videos of an episode, in the run's videos/; none: no videos."""

    report: bool
    """Write curve.png and report.html at the end of the run."""

    debug: bool
    """Show the traceback of an error."""


class LoadPolicyFlags(CommonFlags, total=False):
    """Flags of ppo.load_policy."""

    eval_env: Text | None
    """Environment of evaluations and videos, observed and acted in alike; none: --env_name."""


class TrainFlags(CommonFlags, total=False):
    """Flags of ppo.train."""

    model: Text
    """Network, or import path of a subclass of ActorCritic; auto: cnn for images, else mlp."""


class ConfigFlags(TrainFlags, total=False):
    """Flags of ppo.tuned_config."""

    eval_env: Text | None
    """Environment of evaluations and videos, observed and acted in alike; none: --env_name."""

    learner: Text
    """Subclass of ppo.Learner; auto: the fastest built-in one that supports the model."""

    callback: str | Sequence[str]
    """Subclass of ppo.Callback; repeat the flag for several."""
