"""Nested observations: which of their parts are standardised."""

from ppo.extensions import Extension

HERE = "ppo.extras.nested"

EXTENSION = Extension(
    flags=(f"{HERE}.flags:NestedFlags",),
    standardized=f"{HERE}.keys:standardized",
    prepare=f"{HERE}.keys:check",
)
