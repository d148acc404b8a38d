"""Watch a run: stop it, keep its best state, film it, and warn of what looks wrong."""

from ppo.extensions import Extension

EXTENSION = Extension(
    flags=("ppo.extras.watch.flags:StoppingFlags", "ppo.extras.watch.flags:VideoFlags"),
    spectators=("ppo.extras.watch.flags:FilmFlags",),
    gone_commands={"render": "give ppo evaluate RUN --episodes=1 --video=FILE"},
    callbacks="ppo.extras.watch.run:make_callbacks",
)
