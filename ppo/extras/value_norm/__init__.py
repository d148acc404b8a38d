"""Value normalisation: values are learned in units of the returns' deviation."""

from ppo.extensions import Extension

HERE = "ppo.extras.value_norm"

EXTENSION = Extension(
    flags=(f"{HERE}.flags:ValueNormFlags",),
    value_head=f"{HERE}.head:make_head",
    parts=f"{HERE}.statistics:make_parts",
    callbacks=f"{HERE}.statistics:make_callbacks",
)
