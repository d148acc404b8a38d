"""The processes that learn one policy together: this one alone, unless an extension knows more."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ppo.extensions import NOTHING, functions_of
from ppo.system.state_dict import State

if TYPE_CHECKING:
    from torch import Tensor  # heavy

    from ppo.components import Components
    from ppo.run.summary import RunSummary


class Peers(AbstractContextManager["Peers"]):
    """This process, which learns alone. Each of several has some of the environments, and calls the
    same methods in the same order: those that exchange something wait for all.

    is_first: whether this process logs, saves and has callbacks; is_alone: whether there is no
    other; about: entries of config.json."""

    is_first = True
    is_alone = True
    about: Mapping[str, Any] = NOTHING

    def ids(self, num_envs: int) -> range:
        """Return the ids of this process's environments, of num_envs in all. Raises ConfigError if
        they cannot be shared evenly."""
        return range(num_envs)

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, in order."""
        return [value]

    def call_in_first(self, make: Callable[[], Any]) -> Any:
        """Call a function in the first process; return its result, or raise its error, in all."""
        return make()

    def average(self, gradients: "Tensor", metrics: State) -> State:
        """Replace gradients (P,) by their mean over all processes, in place; return the mean of
        metrics, on a GPU as tensors."""
        return metrics

    def metrics(self) -> State:
        """Return metrics of what was exchanged since the last call."""
        return {}

    def follow(self, parts: "Components") -> "RunSummary":
        """Train with the first process, in another one, until that ends the run; return its
        summary. parts: of a new run, to be restored if it is resumed."""
        raise NotImplementedError

    def __exit__(self, *exception: object) -> None:
        """Leave the others."""


def join_peers() -> Peers:
    """Return the processes that this one learns with, after joining them."""
    joined = (join() for join in functions_of("peers"))
    return next(filter(None, joined), Peers())
