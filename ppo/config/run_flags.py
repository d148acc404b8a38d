"""Flags of where and how a run is executed, saved and watched."""

from typing import Literal

from ppo.config.flags import CALLED, Auto, Count, Flags, flag, run_flag
from ppo.extensions import names_of

# The loggers that have a name, by their import paths.
LOGGERS = {"console": "ppo.run.loggers.console:ConsoleLogger", **names_of("loggers")}
LOGGER = "|".join(LOGGERS)


class RunFlags(Flags):
    """Run folder, evaluation and checkpoints."""

    name: str | None = run_flag(
        None,
        "Name of the run and of its folder in runs/; none: environment, seed and time.",
        common=True,
    )
    run_dir: str | None = run_flag(
        None,
        "Folder of the run, which must be new or empty; none: runs/NAME.",
    )
    resume: str | Auto | None = run_flag(
        None,
        "Folder or name of the run to resume; auto: --run_dir if it has a checkpoint.",
        common=True,
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
    )
    max_losses: int = run_flag(
        10,
        "Number of worker processes, lost as their environments raise, crash or hang, that are "
        "replaced within ten minutes; another one ends the run.",
        low=0,
    )
    device: str = flag(
        "cpu",
        "Device on which the policy is trained; auto: cuda for images if there is one, else cpu.",
        pattern=r"cpu|cuda(:\d+)?|mps|auto",
        form="cpu, cuda, cuda:N, mps or auto",
        common=True,
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
