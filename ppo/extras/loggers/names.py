"""Metrics by the names that other trainers give them, so that existing dashboards show a run."""

from typing import NamedTuple

from ppo.algorithm.rollout import Metrics
from ppo.config.config import Config
from ppo.extras.loggers.flags import NameFlags

GROUPS = {
    "rollout": "episodes episode_return_mean episode_length_mean",
    "losses": "loss policy_loss value_loss entropy approx_kl clip_fraction value_clip_fraction"
    " grad_norm explained_variance gradient_steps skipped_steps learning_rate clip_coef",
    "time": "iteration step seconds steps_per_second seconds_collecting seconds_learning"
    " seconds_exchanging",
    "eval": "evaluation_return_mean",
}
GROUPED = {name: f"{group}/{name}" for group, names in GROUPS.items() for name in names.split()}


class Name(NamedTuple):
    """Another trainer's name of a metric, and by what ours is multiplied to be the same."""

    name: str
    factor: float = 1.0


SB3 = {
    "episode_return_mean": Name("rollout/ep_rew_mean"),
    "episode_length_mean": Name("rollout/ep_len_mean"),
    "env/success_rate": Name("rollout/success_rate"),
    "steps_per_second": Name("time/fps"),
    "iteration": Name("time/iterations"),
    "seconds": Name("time/time_elapsed"),
    "step": Name("time/total_timesteps"),
    "approx_kl": Name("train/approx_kl"),
    "clip_fraction": Name("train/clip_fraction"),
    "clip_coef": Name("train/clip_range"),
    "entropy": Name("train/entropy_loss", -1.0),
    "explained_variance": Name("train/explained_variance"),
    "learning_rate": Name("train/learning_rate"),
    "loss": Name("train/loss"),
    "policy_loss": Name("train/policy_gradient_loss"),
    "value_loss": Name("train/value_loss", 2.0),  # there the squared error, here half of it
    "evaluation_return_mean": Name("eval/mean_reward"),
}
CLEANRL = {
    "episode_return_mean": Name("charts/episodic_return"),
    "episode_length_mean": Name("charts/episodic_length"),
    "learning_rate": Name("charts/learning_rate"),
    "steps_per_second": Name("charts/SPS"),
    "step": Name("global_step"),
    "value_loss": Name("losses/value_loss"),
    "policy_loss": Name("losses/policy_loss"),
    "entropy": Name("losses/entropy"),
    "approx_kl": Name("losses/approx_kl"),
    "clip_fraction": Name("losses/clipfrac"),
    "explained_variance": Name("losses/explained_variance"),
}
TABLES: dict[str, dict[str, Name]] = {"ppo": {}, "sb3": SB3, "cleanrl": CLEANRL}


def rename(config: Config, metrics: Metrics) -> Metrics:
    """Return metrics by the names of --metric_names; those that the other trainer does not have, by
    our own."""
    table = TABLES[NameFlags.of(config).metric_names]
    renamed = {
        table[name].name: value if value is None else value * table[name].factor
        for name, value in metrics.items()
        if name in table
    }
    return renamed | by_group({name: x for name, x in metrics.items() if name not in table})


def by_group(metrics: Metrics) -> Metrics:
    """Return metrics by the names that dashboards group them by, such as losses/loss.

    Other names, env/..., faults/... and the user's own, stay as they are.
    """
    return {GROUPED.get(name, name): value for name, value in metrics.items()}
