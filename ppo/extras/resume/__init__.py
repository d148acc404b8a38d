"""Exact resume: episodes that were open when a run was saved go on where they were."""

from ppo.extensions import Extension

HERE = "ppo.extras.resume"

EXTENSION = Extension(
    parts=f"{HERE}.run:make_parts",
    worker_parts={"open_episodes": f"{HERE}.replay:Replay"},
)
