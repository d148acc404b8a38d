"""See runs while they learn: curves, the newest video and events, on a page of this machine."""

from ppo.extensions import Command, Extension

EXTENSION = Extension(
    commands={
        "watch": Command(
            "ppo.extras.live_page.command:Watch",
            "Show runs while they learn, on a page for browsers of this machine.",
        )
    },
    needs=("tools",),  # whose style and colours the page has
)
