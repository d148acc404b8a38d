"""What takes part in learning beside the learner, in every process."""

from collections.abc import Iterator
from contextlib import contextmanager

from ppo.algorithm.rollout import Batch, Rollout
from ppo.system.state_dict import State


class Part:
    """Base class of what extensions add to learning: override what you need."""

    def on_batch(self, rollout: Rollout, batch: Batch) -> None:
        """Change the batch (T * N, ...) that was made of a rollout, before the update by it."""

    @contextmanager
    def on_update(self, batch: Batch, iteration: int) -> Iterator[None]:
        """Enclose the update of statistics and weights by a batch. iteration counts from 1."""
        yield

    def state_dict(self) -> State:
        """Return the state to save in checkpoints: tensors and JSON values, by name."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Restore what state_dict() returned, {} where a checkpoint has nothing of this part.
        Raises CheckpointError for a state that is not this part's."""
