"""Flags of what is learned: which a run must keep, and which are for some environments."""

from ppo.config.config import Config
from ppo.config.learning_flags import AlgorithmFlags, EnvironmentFlags, NetworkFlags
from ppo.models import MODELS


def test_a_run_keeps_its_environment_network_and_shape_of_rollouts() -> None:
    assert {*NetworkFlags.names(fixed=False)} == {"log_std_init"}
    assert {*EnvironmentFlags.names(fixed=False)} == {"eval_env"}
    kept = {"seed", "optimizer", "num_steps"}
    assert {*AlgorithmFlags.names(fixed=True)} == kept
    assert not Config.names(fixed=True, scope="run")


def test_every_built_in_model_is_a_choice() -> None:
    for name in ("auto", *MODELS):
        assert Config(model=name).model == name
