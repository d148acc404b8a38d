"""ppo evaluate: play whole episodes of runs or policy files, and film them."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ppo.config import flag
from ppo.errors import ConfigError, Interrupted


@dataclass(frozen=True)
class Flags:
    episodes: int = flag(20, 1, 1e6)
    """Number of episodes."""
    num_envs: int = flag(8, 1, 1e6)
    """Number of parallel environments."""
    seed: int = flag(0, 0, 2**32 - 1)
    """Random seed of the episodes."""
    stochastic: bool = False
    """Sample actions, in place of the most likely ones."""
    video: str | None = None
    """File to write a video to, such as play.mp4 or play.gif."""
    render: str | None = None
    """human: show the episodes in a window."""


def main(paths: list[str], options: Flags, flags: dict[str, Any]) -> None:
    """Evaluate runs or policy files. flags: of the environment, in place of the runs'."""
    if not paths:
        raise ConfigError("evaluate needs a run or a policy file: ppo evaluate runs/NAME")
    how = {**vars(options)}
    video = how.pop("video")
    if video and Path(video).suffix not in (".mp4", ".gif"):
        raise ConfigError(f"--video={video}: give a file that ends in .mp4 or .gif")
    from ppo.checkpoint import find
    from ppo.extras.curves import runs_of
    from ppo.extras.runs import print_table
    from ppo.extras.videos import film
    from ppo.policy import load_policy
    from ppo.process import StopSignals

    chosen: list[Any] = []
    for path in paths:
        chosen += runs_of(path) or [path]
    if video and len(chosen) > 1:
        raise ConfigError(f"--video={video} is of one run: give one, not {len(chosen)}")
    rows: list[dict[str, Any]] = []
    try:
        for path in chosen:
            with StopSignals() as signals:
                policy = load_policy(path, **flags)
                if policy.config.threads != "auto":
                    import torch

                    torch.set_num_threads(policy.config.threads)
                evaluate: Any = policy.evaluate
                if video:
                    evaluate = partial(film, policy, Path(video))
                result = evaluate(**how, should_stop=signals.any)
            if signals.received:
                raise Interrupted(f"{signals.received.name}: stopped", signals.received)
            rows.append(
                {
                    "run": path,
                    "checkpoint": find(path).stem,
                    "step": policy.state["step"],
                    "episodes": len(result.returns),
                    "return": result.mean,
                    "std": result.std,
                    **result.env,
                }
            )
    finally:
        if rows:
            names = [*dict.fromkeys(name for row in rows for name in row)]
            values = [[*map(row.get, names)] for row in rows]
            print_table([names, *values])
