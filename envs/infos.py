"""Read a vector environment's infos: of one environment, and last observations of episodes."""

from typing import Any

from ppo.envs.errors import InvalidEnvOutput
from ppo.envs.spaces import ACTION_MASK
from ppo.envs.trees import to_numpy
from ppo.envs.values import describe_value

Infos = dict[str, Any]  # of all columns: an array (n, ...) by key
LAST_OBSERVATIONS = ("final_obs", "final_observation")  # names in the infos of SAME_STEP
NOT_OF_A_COLUMN = {*LAST_OBSERVATIONS, "final_info", "env_id", "players"}


def info_of(infos: Infos, i: int, num_envs: int) -> dict[str, Any]:
    """Return the info of column i, that of the step that ended its episode if final_info has one.

    Left out are keys that a mask _key denies to this column, observations, and values that are not
    of num_envs rows, such as logs of a whole batch. Raises InvalidEnvOutput for masks of actions
    that are not of num_envs rows: without them, all would be allowed."""
    final = infos.get("final_info")
    if final is not None and _has(infos, "final_info", i):
        return info_of(final, i, num_envs) if isinstance(final, dict) else (final[i] or {})
    info: dict[str, Any] = {}
    for key, values in infos.items():
        is_rows = isinstance(values, dict) or _num_rows(values) == num_envs
        if key == ACTION_MASK and values is not None and not is_rows:
            raise InvalidEnvOutput(
                f"its action_mask is {describe_value(values)}, not one for each of {num_envs} "
                "environments"
            )
        if str(key).startswith("_") or key in NOT_OF_A_COLUMN or not _has(infos, key, i):
            continue
        if isinstance(values, dict):
            if nested := info_of(values, i, num_envs):
                info[key] = nested
        elif is_rows:
            info[key] = to_numpy(values[i]) if hasattr(values, "detach") else values[i]
    return info


def _has(infos: Infos, key: str, i: int) -> bool:
    """Return whether infos[key] has a value for column i."""
    mask = infos.get(f"_{key}")
    if mask is not None:
        return bool(mask[i])
    values = infos[key]
    return isinstance(values, dict) or _num_rows(values) <= i or values[i] is not None


def _num_rows(values: Any) -> int:
    if isinstance(values, (list, tuple)):
        return len(values)
    shape = getattr(values, "shape", ())
    return shape[0] if shape else 0
