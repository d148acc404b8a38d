"""Flags of the package: the module imports nothing else of the trainer, which is not made yet."""

from ppo.config.flags import Flags, flag


class NoteFlags(Flags):
    """Notes."""

    note: str | None = flag(None, "Text to note; none: nothing is noted.", environment=True)
    pull: float = flag(0.0, "Coefficient of the squared values in the loss.", low=0)
