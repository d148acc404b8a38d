"""Choose the class of Batch that suits a vector environment."""

from typing import Any

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from ppo.envs.errors import EnvironmentUnavailable
from ppo.extras.vector.batches import (
    AtariVector,
    Batch,
    MaskedReset,
    NextStep,
    SameStep,
    find_attribute,
)
from ppo.extras.vector.envpool import EnvPoolBatch


def adapt(env: Any, max_episode_steps: int | None = None, num_envs: int | None = None) -> Batch:
    """Return the Batch of a vector environment that steps many environments together.

    EnvPool, ale_py's AtariVectorEnv, gymnasium's SyncVectorEnv and AsyncVectorEnv, and any other
    gymnasium.vector.VectorEnv whose autoreset is off, are told which columns to reset. Others reset
    columns by themselves: metadata["autoreset_mode"] says whether in the same step, which is
    assumed if it says nothing, or in the next one.
    num_envs: how many environments there must be; None: any number. Raises EnvironmentUnavailable
    for another number, for missing attributes, for a limit that this vector environment cannot
    keep, and for one that resets nothing."""
    batch = _choose(env, max_episode_steps)
    if num_envs not in (None, batch.num_envs):
        raise EnvironmentUnavailable(
            f"{type(env).__name__} is a batch of {batch.num_envs} environments, not of {num_envs}: "
            "make as many as its parameter num_envs says"
        )
    if max_episode_steps and not isinstance(batch, MaskedReset):
        raise EnvironmentUnavailable(
            f"--max_episode_steps={max_episode_steps} cannot be kept, as {type(env).__name__} "
            "cannot reset a single environment: give the limit to the environment itself"
        )
    return batch


def _choose(env: Any, max_episode_steps: int | None) -> Batch:
    innermost = getattr(env, "unwrapped", env)
    modules = {kind.__module__.split(".")[0] for kind in type(innermost).__mro__}
    if "envpool" in modules:
        return EnvPoolBatch(env, max_episode_steps)
    if "ale_py" in modules:
        return AtariVector(env, max_episode_steps)
    mode = find_attribute(env, "metadata").get("autoreset_mode")
    mode = str(getattr(mode, "value", mode)).replace("_", "").lower()
    is_vector_env = isinstance(env, VectorEnv)
    is_told = isinstance(innermost, (SyncVectorEnv, AsyncVectorEnv)) or mode == "disabled"
    if is_told and is_vector_env:
        return MaskedReset(env, max_episode_steps)
    if is_told or ("mani_skill" in modules and not is_vector_env):
        raise EnvironmentUnavailable(
            f"{type(env).__name__} does not reset environments whose episodes have ended: turn its "
            "autoreset on (for ManiSkill, put it into a ManiSkillVectorEnv)"
        )
    return NextStep(env) if mode == "nextstep" else SameStep(env)
