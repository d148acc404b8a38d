"""Results of evaluations and runs."""

from dataclasses import asdict, dataclass
from typing import Any

from ppo.system.output import readable


@dataclass(frozen=True)
class Evaluation:
    """What whole episodes of a policy came to.

    mean, std: of the returns, None without episodes; returns, undiscounted and of the environment's
    own rewards, and lengths, in the order of the episodes' seeds; unfinished: how many episodes
    were cut off; env: the mean of each of the environment's own metrics over the episodes that
    report it."""

    episodes: int
    mean: float | None
    std: float | None
    returns: list[float]
    lengths: list[int]
    unfinished: int
    env: dict[str, float]

    def describe(self) -> str:
        """Return the mean and the standard deviation of the returns as a text."""
        assert self.mean is not None
        assert self.std is not None
        return f"{readable(self.mean)} +/- {readable(self.std)}"


@dataclass(frozen=True)
class RunSummary:
    """What a run came to.

    seconds: that it took; stopped: why it ended before its last step, None if it did not; episodes:
    that ended in training; mean_return: of the last of them, None if it has no value; evaluation:
    of the final policy; checkpoint: the path of the last one."""

    env_name: str
    seed: int
    steps: int
    seconds: float
    steps_per_second: float
    stopped: str | None
    episodes: int
    mean_return: float | None
    evaluation: Evaluation
    checkpoint: str

    def content(self) -> dict[str, Any]:
        """Return the content of summary.json, which may be moved with its checkpoints."""
        content = asdict(self)
        del content["checkpoint"]
        return content
