"""Flags of where and how a run is executed, saved and watched."""

from typing import Literal

from ppo.config.flags import Auto, Count, Flags, Positive, flag, run_flag

# To add a logger, derive a class from ppo.run.loggers.logger.Logger and name it here. The names are
# not in ppo.run, since flags are checked before anything in it is imported.
LOGGERS = {
    "console": "ppo.run.loggers.console:ConsoleLogger",
    "tensorboard": "ppo.run.loggers.tensorboard:TensorBoardLogger",
    "wandb": "ppo.run.loggers.wandb:WandbLogger",
}
LOGGER = "|".join(LOGGERS)
NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
CONDITION = rf"([\w/.-]+) *([<>]=?) *({NUMBER})"  # such as env/success_rate>0.95
DURATION = {"pattern": r"\d+(\.\d+)?[smhd]", "form": "a number and a unit, like 90s, 30m, 2h or 1d"}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration such as "90s", "30m", "2h" or "1d", as DURATION allows."""
    return float(duration[:-1]) * SECONDS[duration[-1]]


class ExecutionFlags(Flags):
    """Processes and devices."""

    num_workers: int | Auto = flag(
        "auto",
        "Processes that step the environments, 0 is the trainer's own; auto is one per core.",
        low=0,
        per_host=True,
    )
    inference: Literal["auto", "worker", "learner"] = flag(
        "auto", "Where actions are computed; auto is learner for images on CUDA without --overlap."
    )
    overlap: bool = flag(
        False, "Collect the next rollout while learning, by weights that are one update older."
    )
    precision: Literal["auto", "float32", "bfloat16"] = flag(
        "auto",
        "Arithmetic of networks; auto is bfloat16 for images if the hardware supports it.",
    )
    device: str = flag(
        "cpu",
        "Device on which the learner computes; auto is the fastest one that suits the network.",
        pattern=r"cpu|cuda(:\d+)?|mps|auto",
        form="cpu, cuda, cuda:N, mps or auto",
    )
    compile: bool = flag(False, "Compile the loss by torch.compile, on CUDA only.")
    torch_deterministic: bool = flag(
        False, "Let torch use deterministic algorithms only; on the CPU all are."
    )


class TimeoutFlags(Flags):
    """Timeouts of environments."""

    step_timeout: Positive = run_flag(
        60.0, "Seconds after which a worker whose environment has not finished a step is replaced."
    )
    reset_timeout: Positive = run_flag(
        120.0,
        "Seconds after which a worker is replaced that has not finished a reset, or its start.",
    )


class RunFlags(Flags):
    """Run folder, checkpoints and evaluation."""

    name: str | None = run_flag(
        None,
        "Name of the run and of its folder in runs/; none is made of environment, seed and time.",
    )
    run_dir: str | None = run_flag(
        None,
        "Folder of the run, which must be new or empty; none is runs/ and the run's name.",
        per_host=True,
    )
    resume: str | Auto | None = run_flag(
        None,
        "Run to resume: its folder or name; auto is --run_dir if that has a checkpoint.",
        per_host=True,
    )
    seeds: Count = run_flag(
        1,
        "Number of runs with successive seeds, each in a process and a folder of its own.",
        high=1000,
    )
    checkpoint_every: Count = run_flag(
        100,
        "Iterations between checkpoints, of which the last three and the best are kept; ten "
        "minutes after one there is another in any case.",
    )
    eval_episodes: int = flag(
        20,
        "Number of episodes in an evaluation by the most likely actions; there is one at the end.",
        low=0,
    )
    eval_max_steps: Count = flag(
        30_000, "Steps after which an episode of an evaluation is cut off, with its return so far."
    )
    eval_every: Count | None = flag(
        None,
        "Iterations between further evaluations, of which the best is kept; none has only one.",
    )
    best_by: str | None = run_flag(
        None,
        "Metric whose greatest value is saved as best.safetensors; none is that of --eval_every.",
    )
    stop_when: str | None = run_flag(
        None,
        "Condition that ends the run, of means from the 100th episode on, as env/success_rate>0.9; "
        "solved>=200 is a mean return that an evaluation proves, solved the environment's own "
        "reward_threshold.",
        pattern=f"solved|{CONDITION}",
        form="a metric or solved, <, <=, > or >= and a number, or solved alone",
    )
    max_time: str | None = run_flag(
        None,
        "Time after which the run ends, over all its parts if it was resumed.",
        **DURATION,
    )
    patience: Count | None = run_flag(
        None, "Iterations without a new greatest value of --best_by after which the run ends."
    )


class LoggingFlags(Flags):
    """Logging."""

    logger: str = run_flag(
        "console",
        "Where metrics go besides metrics.csv.",
        pattern=f"none|({LOGGER})(,({LOGGER}))*",
        form=f"none, or some of {','.join(LOGGERS)}",
    )
    log_every: Count | None = run_flag(
        None, "Iterations between lines on the console; none is a line every 5 seconds."
    )
    verbose: int = run_flag(
        1, "What is printed: 0 nothing, 1 progress, 2 also every setting and metric.", low=0, high=2
    )
    show: str | None = run_flag(
        None,
        "Metrics, separated by commas, to show on the console besides, such as env/success_rate.",
    )
    histogram_every: Count | None = run_flag(
        10, "Iterations between histograms in TensorBoard and Weights & Biases; none draws none."
    )
    wandb_project: str | None = run_flag(
        None, "Project on Weights & Biases; none is the environment variable WANDB_PROJECT's."
    )
    wandb_entity: str | None = run_flag(
        None, "Team or user on Weights & Biases; none is your default one."
    )
    wandb_tags: str | None = run_flag(
        None, "Tags, separated by commas, besides environment, model and preset."
    )
    log_checkpoint: bool = run_flag(False, "Upload the last checkpoint to Weights & Biases.")
    video_every: Count | None = run_flag(
        None, "Iterations between videos of an episode, in the run's videos/; none makes none."
    )
    report: bool = run_flag(True, "Draw curve.png and write report.html at the end of the run.")
    debug: bool = run_flag(False, "Show the traceback of an error.")
