"""How this process calls functions that use environments, and how long a call may take in all."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ppo.extensions import NOTHING, functions_of

if TYPE_CHECKING:
    from ppo.config.config import Config

T = TypeVar("T")
OnProgress = Callable[[int], object]


def ignore(done: int) -> None:
    """Ignore progress: the default of on_progress."""


class Deadline(NamedTuple):
    """Seconds after which a call of an environment counts as hung, and the flag that sets them."""

    seconds: float
    flag: str


class Guard:
    """Calls functions that use environments in this process, with no deadline for any call."""

    def start(self) -> None:
        """Get ready, as environments will be used."""

    def call(
        self,
        purpose: str,
        config: "Config",
        function: Callable[..., T],
        *arguments: Any,
        **options: Any,
    ) -> T:
        """Return function(*arguments, **options).

        purpose: names the call in error messages; config: has the flags of the environment. An
        option on_progress is a function of progress, such as the number of finished episodes."""
        return function(*arguments, **options)

    def deadlines(self, config: "Config") -> Mapping[str, Deadline]:
        """Return the deadline of each call of ppo.envs.heartbeat.CALLS that has one."""
        return NOTHING

    def close(self) -> None:
        """End what start has begun."""


@cache
def guard() -> Guard:
    """Return that of this process: that of the last extension that has one."""
    made = [make() for make in functions_of("guard")]
    return next(filter(None, reversed(made)), Guard())
