"""A package outside of the trainer that adds to it, by an entry point of the group ppo.extras."""

from ppo.extensions import Command, Extension

EXTENSION = Extension(
    flags=("plugin.flags:NoteFlags",),
    callbacks="plugin.run:make_callbacks",
    complete="plugin.run:complete",
    peers="plugin.run:join",
    launch="plugin.run:launch",
    prepare="plugin.run:prepare",
    parts="plugin.run:make_parts",
    loggers={"lines": "plugin.run:Lines"},
    commands={"count": Command("plugin.run:Count", "Count the rows of a run.")},
    exports={"Note": "plugin.run:Note"},
    after=("transfer",),
)
