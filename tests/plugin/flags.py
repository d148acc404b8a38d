"""Flags of the package: the module imports nothing else of the trainer, which is not made yet."""

from pathlib import Path
from typing import Any

from ppo.config.flags import Flags, flag


class NoteFlags(Flags):
    """Notes."""

    note: str | None = flag(None, "Text to note; none: nothing is noted.", environment=True)
    pull: float = flag(0.0, "Coefficient of the squared values in the loss.", low=0)


class StepsFlags(Flags):
    """Steps."""

    steps: str | None = flag(None, "File for the number of steps and resets; none: no file.")

    def spectator(self) -> Any:
        from plugin.run import Steps

        return Steps(Path(self.steps)) if self.steps else None
