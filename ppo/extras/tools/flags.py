"""Flags of a run's report and of several seeds."""

from ppo.config.flags import Count, Flags, run_flag


class ReportFlags(Flags):
    """Report."""

    report: bool = run_flag(True, "Write curve.png and report.html at the end of the run.")


class SeedsFlags(Flags):
    """Several seeds."""

    seeds: Count = run_flag(
        1,
        "Number of runs with successive seeds, each in its own process and folder.",
        high=1000,
    )
