"""Decide which of a run's evaluations is its result."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from ppo.envs.env_kwargs import NUMBER
from ppo.run.reader import EVALUATIONS, FILE_NAMES, RESULT, RUN_SUMMARY, SUMMARY, read_optional
from ppo.system.state_dict import State


def result_of(folder: Path, config: State) -> State | None:
    """Return a run's result: of the evaluations of its newest checkpoint that compare with the
    run's own, the one of the most episodes, and of several the newest; None if there is none.

    config: the content of the run's config.json."""
    made = evaluations_of(folder)
    steps = [int(path.stem) for path in (folder / "checkpoints").glob(FILE_NAMES)]
    # Where no checkpoint is kept, the evaluations alone say how far the run has come.
    newest = max(steps or [one["step"] for one in made if one["step"] is not None], default=None)
    found = [one for one in made if one["step"] == newest and not differences(one, config)]
    return max(reversed(found), key=lambda one: len(one["returns"]), default=None)


def evaluations_of(folder: Path) -> list[State]:
    """Return the evaluation at the end of a run and later ones by ppo evaluate, the newest last,
    each with its "mean" and the "step" of its checkpoint, None if that is not known.

    Evaluations without episodes are left out, and with a warning those of a file that is damaged.
    """
    summary = read_optional(folder / SUMMARY, RUN_SUMMARY, {})
    own = {**(summary.get("evaluation") or {}), "step": summary.get("steps")}
    later = read_optional(folder / EVALUATIONS, [RESULT], [])
    made = [own, *({"step": _step_in_name(one), **one} for one in later)]
    return [{**one, "mean": float(np.mean(one["returns"]))} for one in made if one.get("returns")]


def differences(made: State, config: State) -> list[str]:
    """Return why the returns of an evaluation do not compare with those of the run's own, by the
    most likely actions in the run's environment, or in that of --eval_env; [] if they do.

    What earlier versions did not note of an evaluation is taken to be as in the run."""
    names = ("run_id", "env_name", "env_kwargs", "wrapper")
    own = {name: config[name] for name in names if name in config}
    own["env_name"] = config.get("eval_env") or config["env_name"]
    if own["env_name"] == f"<{str(made.get('env_name')).rpartition(':')[2]}>":
        del own["env_name"]  # the class or function of this name, given by its import path
    found = [f"other {name}" for name, x in own.items() if alike(made.get(name, x)) != alike(x)]
    if not made.get("deterministic", True):
        found.append("random actions")
    limit = config.get("eval_max_steps") or 0
    if made.get("unfinished") and (made.get("max_steps") or limit) < limit:
        found.append(f"cut off before {limit:,} steps")
    return found


def alike(setting: Any) -> Any:
    """Return a setting with {index} in place of every expression of an environment's index in its
    texts: environments that differ by their port only are alike."""
    if isinstance(setting, dict):
        return {name: alike(x) for name, x in setting.items()}
    if isinstance(setting, list):
        return [alike(x) for x in setting]
    return NUMBER.sub("{index}", setting) if isinstance(setting, str) else setting


def _step_in_name(made: State) -> int | None:
    """Return the step in the name of an evaluation's checkpoint: earlier versions noted no other.
    None if it is a link, or no checkpoint of a run."""
    name = Path(made.get("checkpoint") or "").name
    return int(Path(name).stem) if fnmatchcase(name, FILE_NAMES) else None
