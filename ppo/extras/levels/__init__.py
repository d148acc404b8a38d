"""A curriculum over levels: which level an episode is on follows from how much is learned there."""

from ppo.extensions import Column, Extension

HERE = "ppo.extras.levels"
PLAYED = Column(flag="levels", width=f"{HERE}.episodes:width", reader=f"{HERE}.episodes:reader")

EXTENSION = Extension(
    flags=(f"{HERE}.flags:LevelFlags",),
    play_flags=(f"{HERE}.flags:PlayedLevels",),
    wrap=f"{HERE}.episodes:wrap",
    columns={"levels": PLAYED},
    worker_parts={"levels": f"{HERE}.episodes:InTraining"},
    parts=f"{HERE}.replay:make_parts",
    callbacks=f"{HERE}.replay:make_callbacks",
    prepare=f"{HERE}.replay:check",
)
