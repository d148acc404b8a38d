"""Flags of where and how a run is executed, saved and watched."""

from typing import Literal

from ppo.config.flags import CALLED, Auto, Count, Flags, Positive, flag, run_flag

# The loggers that have a name. They are not in ppo.run, since flags are checked before anything in
# it is imported.
LOGGERS = {
    "console": "ppo.run.loggers.console:ConsoleLogger",
    "tensorboard": "ppo.run.loggers.tensorboard:TensorBoardLogger",
    "wandb": "ppo.run.loggers.wandb:WandbLogger",
}
LOGGER = "|".join(LOGGERS)
NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
CONDITION = rf"([\w/.-]+) *([<>]=?) *({NUMBER})"  # such as env/success_rate>0.95
DURATION = {"pattern": r"\d+(\.\d+)?[smhd]", "form": "number and unit, like 90s, 30m, 2h or 1d"}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration such as "90s", "30m", "2h" or "1d"."""
    return float(duration[:-1]) * SECONDS[duration[-1]]


class RunFlags(Flags):
    """Run folder, evaluation, stopping and checkpoints."""

    name: str | None = run_flag(
        None,
        "Name of the run and of its folder in runs/; none: environment, seed and time.",
    )
    run_dir: str | None = run_flag(
        None,
        "Folder of the run, which must be new or empty; none: runs/NAME.",
        per_host=True,
    )
    resume: str | Auto | None = run_flag(
        None,
        "Folder or name of the run to resume; auto: --run_dir if it has a checkpoint.",
        per_host=True,
    )
    seeds: Count = run_flag(
        1,
        "Number of runs with successive seeds, each in its own process and folder.",
        high=1000,
    )
    eval_every: Count | None = flag(
        None,
        "Iterations between evaluations, of which the best is kept; none: only at the end.",
    )
    eval_episodes: int = flag(
        20,
        "Episodes per evaluation, with deterministic actions; the run ends with one, unless 0.",
        low=0,
    )
    eval_max_steps: Count = flag(
        30_000, "Steps after which an evaluation episode is cut off; its return so far counts."
    )
    best_by: str | None = run_flag(
        None,
        "Metric whose highest value is saved as best.safetensors; none: that of --eval_every.",
    )
    stop_when: str | None = run_flag(
        None,
        "Condition that ends the run: on a metric, such as env/success_rate>0.9, a mean over the "
        "last 100 episodes; or solved>=200, on the mean return of an evaluation of 100 episodes; "
        "solved alone takes the environment's reward_threshold.",
        pattern=f"solved|{CONDITION}",
        form="metric or solved, <, <=, > or >= and number, or solved alone",
    )
    patience: Count | None = run_flag(
        None, "Iterations without a new highest value of --best_by after which the run ends."
    )
    max_time: str | None = run_flag(
        None,
        "Time after which the run ends, including pauses and the time before it was resumed.",
        **DURATION,
    )
    checkpoint_every: Count = run_flag(
        100,
        "Iterations between checkpoints, which are at most ten minutes apart; the last three and "
        "the best are kept.",
    )
    keep_every: Count | None = run_flag(
        None,
        "Iterations between checkpoints that are kept for good, in milestones/; none: none are.",
    )


class LoggingFlags(Flags):
    """Logging."""

    logger: list[str] = run_flag(
        "console",
        "Loggers of metrics, in addition to metrics.csv, or a subclass of ppo.Logger, with Python "
        "literals as arguments; repeat the flag for several.",
        pattern=f"none|({LOGGER})(,({LOGGER}))*|{CALLED}",
        form=f"none, some of {','.join(LOGGERS)}, or module:Name(name=value, ...)",
        imports=True,
    )
    verbose: int = run_flag(
        1, "Verbosity: 0 nothing, 1 progress, 2 also every setting and metric.", low=0, high=2
    )
    log_every: Count | None = run_flag(
        None, "Iterations between lines on the console; none: a line every 5 seconds."
    )
    show: str | None = run_flag(
        None,
        "Comma-separated further metrics to print in each line, such as env/success_rate.",
    )
    report: bool = run_flag(True, "Write curve.png and report.html at the end of the run.")
    video_every: Count | None = run_flag(
        None, "Iterations between videos of an episode, in the run's videos/; none: no videos."
    )
    histogram_every: Count | None = run_flag(
        10,
        "Iterations between histograms in TensorBoard and Weights & Biases; none: no histograms.",
    )
    wandb_project: str | None = run_flag(
        None, "Project on Weights & Biases; none: that of the environment variable WANDB_PROJECT."
    )
    wandb_entity: str | None = run_flag(
        None, "Team or user on Weights & Biases; none: your default."
    )
    wandb_tags: str | None = run_flag(
        None, "Comma-separated tags, in addition to environment, model and preset."
    )
    log_checkpoint: bool = run_flag(False, "Upload the last checkpoint to Weights & Biases.")
    debug: bool = run_flag(False, "Show the traceback of an error.")

    @property
    def loggers(self) -> set[str]:
        """The loggers to use, by name or as a call: with the console, unless it is turned off."""
        names = {"console"}
        for text in self.logger:
            names |= {text} if ":" in text else {*text.split(",")}
        if "none" in names or not self.verbose:
            names.discard("console")
        return names - {"none"}


class ExecutionFlags(Flags):
    """Processes and devices."""

    num_workers: int | Auto = flag(
        "auto",
        "Number of worker processes that step the environments; 0: none, the trainer's own process "
        "steps them, auto: one per core.",
        low=0,
        per_host=True,
    )
    device: str = flag(
        "cpu",
        "Device on which the policy is trained; auto: cuda for images if there is one, else cpu.",
        pattern=r"cpu|cuda(:\d+)?|mps|auto",
        form="cpu, cuda, cuda:N, mps or auto",
    )
    precision: Literal["auto", "float32", "bfloat16"] = flag(
        "auto",
        "Floating-point type of networks; auto: bfloat16 for images if the hardware supports it, "
        "else float32.",
    )
    inference: Literal["auto", "worker", "learner"] = flag(
        "auto",
        "Where actions are computed: by each worker for its own environments, or by the learner "
        "for all; auto: learner for images on CUDA, else worker.",
    )
    torch_deterministic: bool = flag(
        False, "Use only deterministic algorithms in torch; on the CPU all are."
    )


class TimeoutFlags(Flags):
    """Timeouts of environments."""

    step_timeout: Positive = run_flag(
        60.0, "Seconds that a step may take before its worker is replaced."
    )
    reset_timeout: Positive = run_flag(
        120.0, "Seconds that a reset, or a worker's start, may take before the worker is replaced."
    )
