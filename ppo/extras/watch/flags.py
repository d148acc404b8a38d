"""Flags that end a run, choose its best state, and film it."""

from typing import TYPE_CHECKING

from ppo.config.flags import DURATION, NUMBER, Count, Flags, flag, run_flag
from ppo.config.run_flags import RunFlags
from ppo.errors import ConfigError

if TYPE_CHECKING:
    from ppo.policy.spectators import Spectator  # heavy

CONDITION = rf"([\w/.-]+) *([<>]=?) *({NUMBER})"  # such as env/success_rate>0.95


class StoppingFlags(Flags):
    """Stopping and the best state."""

    best_by: str | None = run_flag(
        None,
        "Metric whose highest value is saved as best.safetensors; none: that of --eval_every.",
    )
    stop_when: str | None = run_flag(
        None,
        "Condition that ends the run: on a metric, such as env/success_rate>0.9, a mean over the "
        "last episodes, at least 100; or solved>=200, on the mean return of an evaluation of 100 "
        "episodes; solved alone takes the environment's reward_threshold.",
        pattern=f"solved|{CONDITION}",
        form="metric or solved, <, <=, > or >= and number, or solved alone",
        common=True,
    )
    patience: Count | None = run_flag(
        None, "Iterations without a new highest value of --best_by after which the run ends."
    )
    max_time: str | None = run_flag(
        None,
        "Time after which the run ends, at the end of an iteration, including pauses and the time "
        "before it was resumed; the final evaluation comes on top (--eval_episodes=0: none).",
        **DURATION,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience and not (self.best_by or RunFlags.of(self).eval_every):
            raise ConfigError(f"--patience={self.patience}: give --best_by or --eval_every as well")


class VideoFlags(Flags):
    """Videos."""

    video_every: Count | None = run_flag(
        None, "Iterations between videos of an episode, in the run's videos/; none: no videos."
    )


class FilmFlags(Flags):
    """A video of the episodes."""

    video: str | None = flag(
        None, "New .mp4 or .gif file for a video of the episodes; none: no video."
    )

    def spectator(self) -> "Spectator | None":
        """Return who films them, if there is a file. Raises ConfigError if it cannot be written."""
        from ppo.extras.watch.film import Film

        return Film(self.video) if self.video else None
