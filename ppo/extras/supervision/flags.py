"""Flags of deadlines."""

from ppo.config.flags import Flags, Positive, run_flag


class TimeoutFlags(Flags):
    """Timeouts of environments."""

    step_timeout: Positive = run_flag(
        60.0, "Seconds that a step may take before its worker is replaced.", environment=True
    )
    reset_timeout: Positive = run_flag(
        120.0,
        "Seconds that a reset, or a worker's start, may take before the worker is replaced.",
        environment=True,
    )
