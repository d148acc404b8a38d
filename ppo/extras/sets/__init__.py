"""Sets of entities: a network that reads any number of them, in any order."""

from ppo.extensions import Extension, Model

HERE = "ppo.extras.sets"

EXTENSION = Extension(
    flags=(f"{HERE}.flags:SetFlags",),
    standardized=f"{HERE}.flags:standardized",
    models={"set": Model(f"{HERE}.model:SetTrunk", 64, "vectors")},
)
