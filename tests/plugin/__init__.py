"""A package outside of the trainer that adds to it, by an entry point of the group ppo.extras."""

from ppo.extensions import Column, Command, Extension, Form, Model

BARE = Form(
    suits="plugin.bare:is_bare",
    look="plugin.bare:look",
    worker="plugin.bare:BareWorker",
    make_env="plugin.bare:make_bare",
    evaluate="plugin.bare:evaluate",
)

EXTENSION = Extension(
    defaults="plugin.run:defaults",
    auto="plugin.run:what_auto_means",
    inspect="plugin.run:inspect",
    about_wrappers={"gymnasium.wrappers:TimeAwareObservation": "tells the time: leave it out"},
    faults={"tenth_step": "has made ten steps"},
    wrap="plugin.run:wrap",
    models={"tiny": Model("plugin.run:make_tiny", 8, "vectors")},
    standardized="plugin.run:standardized",
    resolve="plugin.run:resolve",
    trunk="plugin.run:around_trunk",
    head="plugin.run:make_head",
    value_head="plugin.run:make_value_head",
    columns={"counts": Column(flag="note", width="plugin.run:width", reader="plugin.run:reader")},
    forms={"bare": BARE},
    makers={"plugin/": "plugin.bare:make_walk"},
    flags=("plugin.flags:NoteFlags",),
    play_flags=("plugin.flags:NoteFlags",),
    spectators=("plugin.flags:StepsFlags",),
    guard="plugin.run:make_guard",
    callbacks="plugin.run:make_callbacks",
    complete="plugin.run:complete",
    peers="plugin.run:join",
    launch="plugin.run:launch",
    reader="plugin.run:Spoken",
    prepare="plugin.run:prepare",
    parts="plugin.run:make_parts",
    worker_parts={"begun": "plugin.bare:Begun"},
    loggers={"lines": "plugin.run:Lines"},
    commands={"count": Command("plugin.run:Count", "Count the rows of a run.")},
    gone_commands={"tally": "give ppo count RUN"},
    exports={"Note": "plugin.run:Note"},
    after=("transfer",),
)
NEEDY = EXTENSION._replace(needs=("nobody",))
