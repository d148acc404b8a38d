"""Nested observations: which of their parts are standardised, and which policy and value read."""

from ppo.extensions import Extension

HERE = "ppo.extras.nested"

EXTENSION = Extension(
    flags=(f"{HERE}.flags:NestedFlags",),
    resolve=f"{HERE}.keys:resolve",
    standardized=f"{HERE}.keys:standardized",
    trunk=f"{HERE}.trunks:around",
    prepare=f"{HERE}.keys:check",
)
