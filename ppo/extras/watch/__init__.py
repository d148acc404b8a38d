"""Watch a run: stop it, keep its best state, film it, and warn of what looks wrong."""

from ppo.extensions import Extension

FILMS = (
    "films in every environment of every process: leave it out, --video_every films the run, and "
    "ppo evaluate RUN --video=FILE a policy"
)
EXTENSION = Extension(
    flags=("ppo.extras.watch.flags:StoppingFlags", "ppo.extras.watch.flags:VideoFlags"),
    spectators=("ppo.extras.watch.flags:FilmFlags",),
    gone_commands={"render": "give ppo evaluate RUN --episodes=1 --video=FILE"},
    about_wrappers={
        "gymnasium.wrappers:RecordVideo": FILMS,
        "gymnasium.wrappers.vector:RecordVideo": FILMS,
    },
    callbacks="ppo.extras.watch.run:make_callbacks",
)
