"""Import paths that users give."""

import math

import pytest

from ppo.errors import ConfigError
from ppo.models.errors import ModelMismatch
from ppo.system.imports import import_named


def test_what_a_flag_names_is_imported() -> None:
    assert import_named("learner", "math:sqrt") is math.sqrt


@pytest.mark.parametrize("path", ["nowhere:Class", "math:nothing"])
def test_what_cannot_be_imported_is_named_with_its_flag(path: str) -> None:
    with pytest.raises(ConfigError, match=f"--learner={path} cannot be imported .*module:Name"):
        import_named("learner", path)
    with pytest.raises(ModelMismatch, match=f"--model={path}"):
        import_named("model", path, ModelMismatch)
