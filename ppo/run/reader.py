"""Read the settings, metrics and results in a run's folder, whose files are untrusted."""

import math
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ppo.errors import CheckpointError, ConfigError
from ppo.system.files import MAX_NUMBER, NotRegular, load_json, open_regular
from ppo.system.hardware import physical_memory
from ppo.system.output import printable, show

if TYPE_CHECKING:
    from ppo.run.folder import RunFolder

METRICS = "metrics.csv"
SUMMARY = "summary.json"
EVALUATIONS = "evaluation.json"
FILE_NAMES = "[0-9]" * 12 + ".safetensors"  # of checkpoints: the environment step
MILESTONES = "milestones"  # the folder of checkpoints that are kept for good
RETURN = "episode_return_mean"
MAX_DAMAGED_LINES = 1000  # of a file whose other lines are worth reading
MAX_LINE_BYTES = 1 << 25  # of metrics.csv: a million columns and more
BYTES_OF_CELL = 128  # that a text takes in the dict of a row
# What counts, and so bounds the time that a run seems to have taken to 35,000 years.
COUNTED = {"iteration": 2**53, "step": 2**53, "seconds": 2**40}
Row = dict[str, Any]

# Schemas of JSON, as misfit takes them. None: the value may be null or missing.
Schema = Any
RESULT: Schema = {  # of an evaluation
    "mean": (float, None),
    "returns": ([float], None),
    "env": ({str: float}, None),
    "seed": (int, None),
    "deterministic": (bool, None),
    "checkpoint": (str, None),
    "step": (int, None),
    "unfinished": (int, None),
    "max_steps": (int, None),
}
RUN_SUMMARY: Schema = {
    "seed": (int, None),
    "steps": int,
    "seconds": float,
    "mean_return": (float, None),
    "stopped": (str, None),
    "evaluation": (RESULT, None),
}
CONFIG: Schema = {
    "env_name": str,
    "run_id": (str, None),
    "eval_env": (str, None),
    "eval_max_steps": (int, None),
}


def run_folder(name: str) -> Path:
    """Return the folder of a run from its path or its name in runs/; it need not exist."""
    named = Path("runs", name)
    if named.is_dir() and not Path(name).is_dir():
        return named
    return Path(name)


def misfit(content: Any, schema: Schema, name: str = "its content") -> str:
    """Return the name of the first part of JSON content that does not fit a schema, or "".

    schema: a type (float: any finite number), a tuple of schemas of which one must fit, [schema]
    for a list of these, {str: schema} for an object of these, or an object with schemas for some of
    its names. name: of the content."""
    if isinstance(schema, tuple):
        return "" if any(not misfit(content, one) for one in schema) else name
    if isinstance(schema, dict) and isinstance(content, dict):
        if str in schema:
            schema = dict.fromkeys(content, schema[str])
        parts = (misfit(content.get(part), own, part) for part, own in schema.items())
        return next(filter(None, parts), "")
    if isinstance(schema, list) and isinstance(content, list):
        return name if any(misfit(part, schema[0]) for part in content) else ""
    kinds = (int, float) if schema is float else (schema,)
    is_infinite = type(content) is float and not math.isfinite(content)
    return "" if content is schema or (type(content) in kinds and not is_infinite) else name


def read_content(path: Path, schema: Schema) -> Any:
    """Return the content of a JSON file in a run's folder. Raises CheckpointError, naming the file,
    if it is missing or damaged, or its content does not fit the schema."""
    try:
        content = load_json(path)
        if wrong := misfit(content, schema):
            raise ValueError(f"{wrong} is not of its type")
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{path} cannot be used ({reason}): move it away") from error
    return content


def read_optional(path: Path, schema: Schema, default: Any) -> Any:
    """Return the content of a JSON file that a run may do without: the default if it is missing or,
    with a warning, if it cannot be used."""
    if not os.path.lexists(path):
        return default
    try:
        return read_content(path, schema)
    except CheckpointError as error:
        show(f"warning: {error}; it is left out")
        return default


class RunRecord(NamedTuple):
    """A run's settings, and its metrics as arrays (iterations,) with NaN for missing values, and
    for those beyond MAX_NUMBER."""

    folder: Path
    config: dict[str, Any]
    metrics: dict[str, np.ndarray]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return label_of(self.folder)


def label_of(folder: Path) -> str:
    """Return the name of a folder, with that of its parent unless it is runs/."""
    name = "/".join(folder.absolute().parts[-2:]).removeprefix("runs/")
    return printable(os.fsencode(name).decode(errors="replace"))  # it may be any bytes


def read_run(folder: Path) -> RunRecord:
    """Read a run's config.json and metrics.csv.

    Raises ConfigError unless it is the folder of a run that has finished an iteration, or if
    one of these files is damaged.
    """
    try:
        if not folder.is_dir():
            raise ValueError("there is no such folder")
        config = read_content(folder / "config.json", CONFIG)
        if not config["env_name"].isprintable():
            raise ValueError(f"config.json has the env_name {config['env_name']!r}")
        rows, problem = _read_table(folder / METRICS)
        if problem or not rows:
            raise ValueError(problem or f"{METRICS} has no rows")
        columns = {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}
        if RETURN not in columns:
            raise ValueError(f"{METRICS} has no column {RETURN}")
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None)
        reason = f"{getattr(error, 'filename', None) or METRICS}: {words}" if words else error
        raise ConfigError(
            f"cannot read the run in {folder} ({reason}): give a run's folder"
        ) from error
    metrics = {name: np.where(abs(x) <= MAX_NUMBER, x, np.nan) for name, x in columns.items()}
    return RunRecord(folder, config, metrics)


def read_rows(run: "RunFolder", iteration: int) -> list[Row]:
    """Return the rows of metrics.csv up to an iteration, the last one whose state was saved.

    Values are texts. There are no rows without a file. A damaged file is renamed, since it will be
    written anew, and an event names it. Raises ConfigError for one that cannot be read, which is no
    damage.
    """
    path = run.path / METRICS
    rows: list[Row] = []
    try:
        rows, problem = _read_table(path, MAX_DAMAGED_LINES)
    except (FileNotFoundError, NotADirectoryError):  # the latter without a folder
        return []
    except NotRegular as error:
        problem = f"{path} cannot be read ({error})"
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror or error}): make it readable, or move it away"
        ) from error
    if problem:
        aside = Path(f"{path}.damaged-{time.time_ns()}")
        path.rename(aside)
        run.event("metrics_damaged", f"{problem}: it is kept as {aside}, its other rows are used")
    return [row for row in rows if int(row["iteration"]) <= iteration]


def _read_table(path: Path, max_damaged: int = 1) -> tuple[list[Row], str]:
    """Return the valid rows of metrics.csv, as texts, and a description of the first other line.

    The description is "" if there is none. An unfinished last line is ignored; after max_damaged
    other lines no more are read. Raises OSError if the file cannot be read, is not a regular one,
    or would take more than half of the machine's memory.
    """
    rows: dict[int, Row] = {}
    problem = ""
    num_damaged = 0
    most = physical_memory() // 2
    with open_regular(path) as file:
        lines = iter(partial(file.readline, MAX_LINE_BYTES), b"")
        names = next(lines, b"").decode(errors="replace").rstrip("\n").split(",")
        for number, line in enumerate(lines, 2):
            if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                break  # unfinished
            if "iteration" not in names:
                return [], f"{path} begins with another line than its header"
            if len(names) * len(rows) * BYTES_OF_CELL > most:
                raise OSError("it would take more than half of this machine's memory")
            try:
                texts = line.decode(errors="replace").rstrip("\n").split(",")
                row = dict(zip(names, texts, strict=True))
                for text in texts:
                    float(text or "nan")
                for name, limit in COUNTED.items():
                    if not 0 <= float(row[name]) < limit:
                        raise ValueError
                int(row["step"])
                rows[int(row["iteration"])] = row
            except (KeyError, ValueError):
                problem = problem or f"line {number} of {path} is not a row of numbers"
                num_damaged += 1
                if num_damaged == max_damaged:
                    break
    return list(rows.values()), problem
