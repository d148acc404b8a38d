"""Exploration that depends on the state (gSDE)."""

from ppo.extensions import Extension

HERE = "ppo.extras.exploration"

EXTENSION = Extension(
    flags=(f"{HERE}.flags:ExplorationFlags",),
    resolve=f"{HERE}.flags:resolve",
    head=f"{HERE}.gsde:make_head",
    prepare=f"{HERE}.gsde:check",
)
