"""What takes part in learning beside the learner, in every process."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from ppo.algorithm.rollout import Batch, Rollout
from ppo.system.state_dict import State

if TYPE_CHECKING:
    from ppo.envs.pool import WorkerPool  # which needs no parts


class Part:
    """Base class of what extensions add to learning: override what you need.

    any_length: tensors of its state that may have any number of rows."""

    any_length: ClassVar[tuple[str, ...]] = ()

    def env_attributes(self) -> State:
        """Return what environments are set to, as by Run.set_env, for new episodes of training, by
        name: values as JSON has them. Policies do not have it. Called once a rollout."""
        return {}

    def on_rollout(self, rollout: Rollout) -> None:
        """Look at a rollout that the workers have just filled."""

    def restore(self, workers: "WorkerPool") -> Collection[int]:
        """Restore in the workers what their environments did when a resumed run was saved; return
        the indices of those whose episodes go on."""
        return ()

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
