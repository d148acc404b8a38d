"""Demonstrations: record episodes, and clone their actions before PPO begins."""

from ppo.extensions import Extension

EXTENSION = Extension(
    flags=("ppo.extras.demonstrations.flags:CloningFlags",),
    spectators=("ppo.extras.demonstrations.flags:RecordFlags",),
    prepare="ppo.extras.demonstrations.run:prepare",
    after=("transfer",),  # a run may begin with another's weights, and clone then
    exports={
        "Recorder": "ppo.extras.demonstrations.recorder:Recorder",
        "record": "ppo.extras.demonstrations.recorder:record",
    },
)
