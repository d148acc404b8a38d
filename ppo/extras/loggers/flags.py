"""Flags of loggers."""

from typing import Literal

from ppo.config.flags import Count, Flags, run_flag


class NameFlags(Flags):
    """Names of metrics."""

    metric_names: Literal["ppo", "sb3", "cleanrl"] = run_flag(
        "ppo",
        "Whose names TensorBoard and Weights & Biases show metrics by, so that dashboards made for "
        "Stable-Baselines3 (rollout/ep_rew_mean) or CleanRL (charts/episodic_return) show them.",
    )


class HistogramFlags(Flags):
    """Histograms."""

    histogram_every: Count | None = run_flag(
        10,
        "Iterations between histograms in TensorBoard and Weights & Biases; none: no histograms.",
    )


class WandbFlags(Flags):
    """Weights & Biases."""

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
