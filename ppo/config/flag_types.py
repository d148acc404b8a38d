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
    """Keyword arguments of the environment; {index} and {9000+10*index} in a text stand for the
    environment's number, and the entries of a list are given to the environments in turn."""

    num_envs: int
    """Number of parallel environments; in multi-agent environments, of agents."""

    wrapper: str | Sequence[str]
    """Wrapper of the environment, with Python literals as arguments; repeat the flag for several,
    the innermost first."""

    max_episode_steps: int | None
    """Time limit: steps after which an episode is truncated; none: the one that is registered with
    the environment's id."""

    normalize_observations: bool | Literal["auto"]
    """Normalise observations by their running mean and standard deviation, clipped at 10; auto: all
    but images."""

    normalize_keys: Text | None
    """Comma-separated keys of a Dict observation to normalise, nested ones as arm.joints; none: all
    but images."""

    normalize_rewards: bool | Literal["auto"]
    """Divide rewards by the running standard deviation of the discounted return, clipped at 10;
    auto: unless --clip_rewards is on or observations are images."""

    clip_rewards: bool
    """Replace each reward by its sign: -1, 0 or 1."""

    image: Literal["gray", "color", "categories", "auto"]
    """How images are read: in gray or in color, resized, or as categories, one-hot; auto: as
    categories if smaller than 36 x 36 pixels, else in gray."""

    screen_size: int
    """Height and width in pixels to which images are resized."""

    frame_stack: int | Literal["auto"]
    """Number of latest observations, images or vectors, that are stacked into one; auto: 4 for
    images, else 1."""

    frame_skip: int | Literal["auto"]
    """Number of frames for which each action is repeated, summing rewards; auto: 4 for Atari games,
    else 1."""

    noop_max: int
    """Atari: maximum number of no-op frames at the start of a game; the number is random."""

    end_on_life_loss: bool
    """Atari: end the episode, but not the game, when a life is lost, in training only."""

    sticky_actions: float | Literal["auto"]
    """Atari: probability that the last action is repeated; auto: that of the id."""

    full_action_space: bool
    """Atari: use all 18 actions, including those without effect in the game."""

    reward_term: str | Sequence[str]
    """Key of a number in each step's info to keep in rollout.reward_terms, for a --learner of your
    own; repeat the flag for several."""

    strict_spaces: bool
    """Raise an error instead of a warning for an observation outside of its space."""

    fresh_env_per_episode: bool
    """Make a new environment for each episode, for one that keeps state across resets."""

    preset: Text
    """Values for flags that are not given: the name of a preset or a JSON file; auto: those tuned
    for the environment or its family, none: the defaults shown here."""

    total_steps: int
    """Number of environment steps, of all environments together, rounded down to whole rollouts; 0:
    only clone --demonstrations."""

    num_iterations: int | None
    """Maximum number of iterations, of a rollout and its epochs each; none: as many as fit in
    --total_steps."""

    seed: int
    """Random seed of weights, environments and actions."""

    learning_rate: float | str | Schedule
    """Learning rate; linear: decays to 0 over the run, adaptive: rises and falls to keep the KL
    divergence near --target_kl, or else 0.01."""

    num_steps: int
    """Steps of each environment per rollout."""

    num_epochs: int
    """Number of epochs over each rollout."""

    num_minibatches: int
    """Number of minibatches, and so of gradient steps, per epoch."""

    batch_size: int | None
    """Minibatch size in transitions; none: the rollout's size divided by --num_minibatches."""

    gamma: float
    """Discount factor."""

    gae_lambda: float
    """Lambda of generalized advantage estimation (GAE)."""

    clip_coef: float | str | Schedule
    """Clipping range of the probability ratio around 1; linear: decays to 0 over the run."""

    clip_value_coef: float | Literal["auto"] | str | Schedule | None
    """Clipping range of the change of values; linear: decays to 0 over the run, auto: --clip_coef,
    none: no clipping."""

    normalize_advantages: Literal["minibatch", "rollout", "none"]
    """Normalise advantages within each minibatch, within the rollout, or not at all."""

    entropy_coef: float | str | Schedule
    """Coefficient of the entropy bonus; linear: decays to 0 over the run."""

    value_coef: float
    """Coefficient of the value loss, which is half the squared error."""

    max_grad_norm: float
    """Maximum norm to which the gradient is clipped; 0: no clipping."""

    target_kl: float | None
    """End the epochs of an iteration when the approximate KL divergence exceeds 1.5 times this;
    none: never."""

    optimizer: Text
    """Optimizer class, with Python literals as arguments other than the learning rate."""

    hidden_size: int | Literal["auto"]
    """Units per hidden layer; auto: 64 for mlp, 128 for lstm and gru, 256 for impala, 512 for cnn
    and cnn_small."""

    num_layers: int
    """Number of hidden layers for observations that are vectors."""

    policy_layers: Text | None
    """Units of each hidden layer of the mlp's policy network; none: --num_layers of
    --hidden_size."""

    value_layers: Text | None
    """Units of each hidden layer of the mlp's value network; none: --num_layers of
    --hidden_size."""

    activation: Literal["tanh", "relu", "elu", "gelu", "silu"]
    """Activation function of these hidden layers."""

    share_trunk: bool | Literal["auto"]
    """Share the hidden layers of policy and value; auto: for images, lstm and gru."""

    log_std_init: float | Literal["auto"]
    """Initial log standard deviation of continuous actions; auto: 0, or -2 with --use_sde."""

    squash_actions: bool
    """Bound continuous actions by tanh instead of by clipping."""

    scale_actions: bool
    """Scale continuous actions from [-1, 1] to bounds that a standard normal does not fit, such as
    those of [300, 500], before they are clipped."""

    use_sde: bool
    """Explore continuous actions by generalized state-dependent exploration (gSDE) instead of
    independent noise."""

    sde_sample_freq: int
    """Steps after which gSDE samples new noise; -1: once per rollout."""

    name: Text | None
    """Name of the run and of its folder in runs/; none: environment, seed and time."""

    run_dir: Text | None
    """Folder of the run, which must be new or empty; none: runs/NAME."""

    resume: Text | None
    """Folder or name of the run to resume; auto: --run_dir if it has a checkpoint."""

    seeds: int
    """Number of runs with successive seeds, each in its own process and folder."""

    eval_every: int | None
    """Iterations between evaluations, of which the best is kept; none: only at the end."""

    eval_episodes: int
    """Episodes per evaluation, with deterministic actions; the run ends with one, unless 0."""

    eval_max_steps: int
    """Steps after which an evaluation episode is cut off; its return so far counts."""

    best_by: Text | None
    """Metric whose highest value is saved as best.safetensors; none: that of --eval_every."""

    stop_when: Text | None
    """Condition that ends the run: on a metric, such as env/success_rate>0.9, a mean over the last
    100 episodes; or solved>=200, on the mean return of an evaluation of 100 episodes; solved alone
    takes the environment's reward_threshold."""

    patience: int | None
    """Iterations without a new highest value of --best_by after which the run ends."""

    max_time: Text | None
    """Time after which the run ends, including pauses and the time before it was resumed."""

    checkpoint_every: int
    """Iterations between checkpoints, which are at most ten minutes apart; the last three and the
    best are kept."""

    keep_every: int | None
    """Iterations between checkpoints that are kept for good, in milestones/; none: none are."""

    logger: str | Sequence[str]
    """Loggers of metrics, in addition to metrics.csv, or a subclass of ppo.Logger, with Python
    literals as arguments; repeat the flag for several."""

    verbose: int
    """Verbosity: 0 nothing, 1 progress, 2 also every setting and metric."""

    log_every: int | None
    """Iterations between lines on the console; none: a line every 5 seconds."""

    show: Text | None
    """Comma-separated further metrics to print in each line, such as env/success_rate."""

    report: bool
    """Write curve.png and report.html at the end of the run."""

    video_every: int | None
    """Iterations between videos of an episode, in the run's videos/; none: no videos."""

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

    debug: bool
    """Show the traceback of an error."""

    num_workers: int | Literal["auto"]
    """Number of worker processes that step the environments; 0: none, the trainer's own process
    steps them, auto: one per core."""

    device: Text
    """Device on which the policy is trained; auto: cuda for images if there is one, else cpu."""

    precision: Literal["auto", "float32", "bfloat16"]
    """Floating-point type of networks; auto: bfloat16 for images if the hardware supports it, else
    float32."""

    overlap: bool
    """Collect the next rollout while learning (double buffering), with weights that are one update
    older."""

    inference: Literal["auto", "worker", "learner"]
    """Where actions are computed: by each worker for its own environments, or by the learner for
    all; auto: learner for images on CUDA without --overlap, else worker."""

    compile: bool
    """Compile the loss by torch.compile, on CUDA only."""

    torch_deterministic: bool
    """Use only deterministic algorithms in torch; on the CPU all are."""

    init_from: Text | None
    """Run or checkpoint whose weights a new run starts with; none: random weights."""

    init_parts: Text
    """Parts to load from --init_from; the normalizer is that of observations, reward statistics
    always start anew."""

    init_partial: bool
    """Load only tensors of --init_from whose shape fits, instead of refusing the others."""

    freeze: Text | None
    """Comma-separated prefixes of the names of parameters that are not trained."""

    critic_warmup: int
    """Iterations at the start in which only the value network is trained; the policy and loaded
    observation statistics do not change."""

    demonstrations: Text | None
    """Recorded episodes whose actions a new run learns to imitate before PPO; none: no cloning."""

    clone_epochs: int
    """Number of epochs over the demonstrations."""

    teacher: Text | None
    """Run or checkpoint of a policy that the new policy learns to imitate in the states that it
    visits itself; none: no teacher."""

    teacher_coef: float | str | Schedule
    """Coefficient of the KL divergence of the policy from the teacher in the loss; linear: decays
    to 0 over the run."""

    distill: bool
    """Learn the policy from the teacher alone, without policy loss and entropy bonus."""

    teacher_parts: Text | None
    """Comma-separated keys of a Dict observation that the teacher reads; none: all."""

    teacher_model: Text | None
    """Import path of the teacher's network if it is a class of your own; none: a built-in one."""

    step_timeout: float
    """Seconds that a step may take before its worker is replaced."""

    reset_timeout: float
    """Seconds that a reset, or a worker's start, may take before the worker is replaced."""


class LoadPolicyFlags(CommonFlags, total=False):
    """Flags of ppo.load_policy."""

    eval_env: Text | None
    """Environment of evaluations and videos, with the same observation and action spaces; none:
    that of --env_name."""


class TrainFlags(CommonFlags, total=False):
    """Flags of ppo.train."""

    model: Text
    """Network, or import path of a subclass of ActorCritic; auto: cnn for images, else mlp."""


class ConfigFlags(TrainFlags, total=False):
    """Flags of ppo.tuned_config."""

    eval_env: Text | None
    """Environment of evaluations and videos, with the same observation and action spaces; none:
    that of --env_name."""

    learner: Text
    """Subclass of ppo.Learner, for a loss or advantages of your own; auto: the fastest built-in one
    that supports the model."""

    callback: str | Sequence[str]
    """Subclass of ppo.Callback, for code of your own during training; repeat the flag for
    several."""
