"""Change settings of a run while it trains."""

from ppo.extensions import Command, Extension

EXTENSION = Extension(
    callbacks="ppo.extras.live.changes:make_callbacks",
    commands={
        "set": Command("ppo.extras.live.command:Set", "Change settings of a run while it trains.")
    },
)
