"""All settings of a run in one frozen, validated dataclass; presets; folders of runs."""

import json
from collections.abc import Callable
from pathlib import Path

from ppo.config.flags import Settings, check_values
from ppo.config.learning_flags import (
    AlgorithmFlags,
    CloningFlags,
    EnvironmentFlags,
    FineTuningFlags,
    NetworkFlags,
    TeacherFlags,
)
from ppo.config.run_flags import ExecutionFlags, LoggingFlags, RunFlags, TimeoutFlags
from ppo.errors import ConfigError

PRESETS = Path(__file__).parent / "presets"
# Modules that any checkpoint may import from.
TRUSTED_MODULES = ("torch.optim", "gymnasium.wrappers")


# The order of bases is that of flags reversed: a dataclass has the fields of its last base first.
class Config(
    LoggingFlags,
    RunFlags,
    TimeoutFlags,
    ExecutionFlags,
    AlgorithmFlags,
    TeacherFlags,
    CloningFlags,
    FineTuningFlags,
    NetworkFlags,
    EnvironmentFlags,
):
    """All settings of a run. The plain defaults are those of Baselines' PPO2 for Atari games, but
    with constant coefficients and, except for images, with normalisation.

    Raises ConfigError if a flag does not take its value, or if two flags contradict each other.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.env_name, str):
            raise ConfigError(
                f"--env_name={self.env_name}: give a text such as my_env.py:MyEnv, or write "
                "train(MyEnv, Config(...))"
            )
        super().__post_init__()
        if isinstance(self.num_workers, int) and self.num_workers > self.num_envs:
            raise ConfigError(
                f"--num_workers={self.num_workers}: give at most --num_envs={self.num_envs}"
            )
        if self.overlap and (self.num_workers == 0 or self.inference == "learner"):
            raise ConfigError(
                "--overlap is for worker processes that act: "
                "give --num_workers=auto and --inference=worker"
            )
        if self.clip_rewards and self.normalize_rewards is True:
            raise ConfigError(
                "--normalize_rewards=True: leave it out with clipped ones, "
                "or give --clip_rewards=False"
            )
        for name in ("teacher_parts", "teacher_model", "distill"):
            if getattr(self, name) and not self.teacher:
                raise ConfigError(f"--{name} is about a teacher: give --teacher as well")
        iteration = f"the {self.rollout_size} steps of an iteration (num_envs x num_steps)"
        if not self.batch_size and self.num_minibatches > self.rollout_size:
            raise ConfigError(f"--num_minibatches={self.num_minibatches}: give at most {iteration}")
        only_clones = self.demonstrations and self.total_steps == 0
        if self.total_steps < self.rollout_size and not only_clones:
            raise ConfigError(f"--total_steps={self.total_steps}: give at least {iteration}")

        if self.patience and not (self.best_by or self.eval_every):
            raise ConfigError(f"--patience={self.patience}: give --best_by or --eval_every as well")

    def __getstate__(self) -> Settings:
        """Return all settings as JSON values, functions as "module:name"; so does a copy or a
        pickle of a config hold them."""
        state = vars(self).copy()
        for name, value in state.items():
            if callable(value):
                state[name] = f"{value.__module__}:{getattr(value, '__qualname__', value)}"
        return state

    @property
    def is_resumed(self) -> bool:
        """Whether --resume names a run to continue rather than being "auto" or none."""
        return self.resume not in (None, "auto")

    @property
    def rollout_size(self) -> int:
        """Number of transitions in a rollout, and so in an iteration, of all ranks."""
        return self.num_envs * self.num_steps

    @property
    def iterations(self) -> int:
        """Number of iterations of the whole run: as many whole rollouts as total_steps allows, at
        most num_iterations."""
        affordable = self.total_steps // self.rollout_size
        return min(affordable, self.num_iterations or affordable)


def load_preset(preset: str, env_name: str, find_family: Callable[[], str]) -> Settings:
    """Return the flags of a preset in ppo/config/presets, or of the user's own .json file.

    preset: its name or file; "none" has no flags; "auto" is as find_preset says. Raises ConfigError
    if there is no such preset, or if it cannot be read or is no valid set of flags.
    """
    if preset == "none":
        return {}
    known = known_presets()
    if preset == "auto":
        preset = find_preset(env_name, find_family)
    elif preset not in known and not preset.endswith(".json"):
        raise ConfigError(f"--preset={preset}: give auto, none, a .json file, {', '.join(known)}")
    path = Path(preset) if preset.endswith(".json") else PRESETS / f"{preset}.json"
    try:
        return check_values(Config, {**json.loads(path.read_text())})
    except (OSError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"--preset={preset}: it cannot be read ({error}): give a file like those in {PRESETS}"
        ) from error


def find_preset(env_name: str, find_family: Callable[[], str]) -> str:
    """Return the name of the environment's preset if there is one, else that of its family, the
    result of find_family."""
    return env_name if env_name in known_presets() else find_family()


def known_presets() -> list[str]:
    """Return the names of the presets in ppo/config/presets."""
    return [path.stem for path in sorted(PRESETS.glob("*.json"))]


def fewest_flags(run: Settings) -> Settings:
    """Return the fewest flags by which a new command line leads to the settings of a run.

    run: the content of its config.json. A flag is left out where the run has the value of its
    preset, or else the default one; "auto" is what it stood for in the run, if that is known."""
    auto = run.get("auto") or {}  # earlier versions did not record it
    names = [x for x in Config.names(scope="training") if x in run and x != "preset"]
    choices = []
    for preset in dict.fromkeys(["auto", run.get("preset", "none"), "none"]):
        try:
            tuned = load_preset(preset, run["env_name"], lambda: auto["preset"])
        except (ConfigError, KeyError):  # the file is gone, or the family was not recorded
            continue
        plain = Config(**tuned).__getstate__()
        plain = {name: auto.get(name, x) if x == "auto" else x for name, x in plain.items()}
        if run.get("num_minibatches") != plain["num_minibatches"]:
            plain["batch_size"] = None  # as settings_of has it
        flags = {"env_name": run["env_name"]}
        if preset != "auto":
            flags["preset"] = preset
        choices.append(flags | {name: run[name] for name in names if run[name] != plain[name]})
    return min(choices, key=len)


def folder_to_resume(given: Settings) -> Path | None:
    """Return the folder of the run to resume, or None to begin a new one.

    given: flags, as texts. --resume=auto is --run_dir, if that has a checkpoint. Raises ConfigError
    if there is no such folder, or if --resume and --run_dir contradict each other.
    """
    name = str(given.get("resume"))
    run_dir = given.get("run_dir")
    if name == "auto":
        if not run_dir:
            raise ConfigError(
                "--resume=auto: give --run_dir as well, the folder of the run to start or to resume"
            )
        if any(Path(run_dir).glob("checkpoints/0*")):
            return Path(run_dir)
        return None
    if name.lower() == "none":
        return None
    if run_dir not in (None, name):
        raise ConfigError(
            f"--run_dir={run_dir}: leave it out, the run is resumed in --resume={name}"
        )
    folder = run_folder(name)
    if not folder.is_dir():
        raise ConfigError(f"--resume={name}: there is no such folder; give that of a run")
    return folder


def run_folder(name: str) -> Path:
    """Return the folder of a run from its path or its name in runs/; it need not exist."""
    named = Path("runs", name)
    if named.is_dir() and not Path(name).is_dir():
        return named
    return Path(name)


def import_paths(settings: Settings, name: str) -> list[str]:
    """Return what a setting names that a file alone is not trusted to name: import paths, and
    labels such as <Reach> of classes and functions."""
    return [
        text
        for text in as_texts(settings.get(name, getattr(Config, name)))
        if text.startswith("<")
        or text.partition("(")[0].rpartition(":")[0] not in ("", *TRUSTED_MODULES)
    ]


def as_texts(setting) -> list[str]:
    """Return a setting, which may be a list, as a list of texts."""
    return setting if isinstance(setting, list) else [str(setting)]
