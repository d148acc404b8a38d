"""A module that misbehaves when it is imported, as the variable MISBEHAVE_IMPORT says."""

import os

from tests.misbehaving import ACTS, Misbehaving

ACTS.get(os.environ.get("MISBEHAVE_IMPORT", ""), int)()


class Late(Misbehaving):
    """Behaves, once it is imported."""
