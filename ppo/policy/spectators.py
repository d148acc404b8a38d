"""Those who see the episodes of an evaluation, such as to film them: extensions have some."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from gymnasium import Env, Wrapper

from ppo.envs.episodes import Info, StepResult
from ppo.extensions import functions_of


class Spectator(AbstractContextManager["Spectator"]):
    """Sees the episodes of an evaluation, which it enters as a context and leaves at the end.

    option: its name, of ppo evaluate and Policy.evaluate; render_mode: that it needs, of one
    environment at a time, or None; wraps: whether it must wrap environments, of which those that
    step together have none; result: a line for the user once the evaluation is over."""

    option: ClassVar[str] = ""
    render_mode: ClassVar[str | None] = None
    wraps: ClassVar[bool] = False
    result: str = ""

    def wrap(self, env: Env) -> Env:
        """Return an environment, whose observations are not preprocessed yet, or a wrapper."""
        return env

    def see(self, env: Any) -> None:
        """Look at an environment, or at several that step together, after a reset or a step."""

    def __exit__(self, *exception: object) -> None:
        """Finish what was made, unless there is an exception."""


class Seen(Wrapper):
    """Show an environment to spectators after each reset and step."""

    def __init__(self, env: Env, spectators: Sequence[Spectator]) -> None:
        super().__init__(env)
        self.spectators = spectators

    def reset(self, **options: Any) -> tuple[Any, Info]:
        result = self.env.reset(**options)
        show(self.env, self.spectators)
        return result

    def step(self, action: Any) -> StepResult:
        result = self.env.step(action)
        show(self.env, self.spectators)
        return result


def show(env: Any, spectators: Sequence[Spectator]) -> None:
    """Let all spectators see an environment."""
    for spectator in spectators:
        spectator.see(env)


def spectators_of(options: Mapping[str, Any]) -> list[Spectator]:
    """Return the spectators that options of an evaluation ask for. Raises TypeError for an unknown
    one, and as extensions do."""
    kinds = functions_of("spectators")
    known = {name for kind in kinds for name in kind.names()}
    if unknown := options.keys() - known:
        raise TypeError(f"evaluate() got an unexpected keyword argument {min(unknown)!r}")
    made = (
        kind(**{name: options[name] for name in kind.names() if name in options}).spectator()
        for kind in kinds
    )
    return [*filter(None, made)]
