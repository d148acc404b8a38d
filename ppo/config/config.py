"""All settings of a run in one frozen, validated dataclass."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ppo.config.flags import Flags, Settings
from ppo.config.learning_flags import (
    AlgorithmFlags,
    EnvironmentFlags,
    NetworkFlags,
)
from ppo.config.run_flags import ExecutionFlags, LoggingFlags, RunFlags
from ppo.errors import ConfigError
from ppo.extensions import functions_of

# Modules that any checkpoint may import from.
TRUSTED_MODULES = ("torch.optim", "gymnasium.wrappers")
# What a checkpoint was made with that lacks these flags, since it is older than they are; of other
# flags, it is their defaults.
BEFORE_FLAGS = {"scale_actions": False}


def flags_of_extensions(field: str, **metadata: Any) -> type[Flags]:
    """Return a class with the flags of all classes that extensions name in one of their fields, but
    those with flags that lack some of this metadata."""
    kinds = [kind for kind in functions_of(field) if kind.names(**metadata) == kind.names()]
    bases = (*reversed(kinds), Flags)
    return type(field, bases, {"__doc__": "Flags of extensions.", "__module__": __name__})


if TYPE_CHECKING:  # so that the core cannot name their flags

    class ExtensionFlags(Flags):
        """The flags of all extensions."""

else:
    ExtensionFlags = flags_of_extensions("flags")


# The order of bases is that of flags reversed: a dataclass has the fields of its last base first.
class Config(
    ExtensionFlags,
    ExecutionFlags,
    LoggingFlags,
    RunFlags,
    NetworkFlags,
    AlgorithmFlags,
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
        if self.clip_rewards and self.normalize_rewards is True:
            raise ConfigError(
                "--normalize_rewards=True: leave it out with clipped ones, "
                "or give --clip_rewards=False"
            )
        iteration = f"the {self.rollout_size} steps of an iteration (num_envs x num_steps)"
        if not self.batch_size and self.num_minibatches > self.rollout_size:
            raise ConfigError(f"--num_minibatches={self.num_minibatches}: give at most {iteration}")
        if 0 < self.total_steps < self.rollout_size:
            raise ConfigError(f"--total_steps={self.total_steps}: give at least {iteration}")

    def __getstate__(self) -> Settings:
        """Return all settings as JSON values, functions as "module:name"; so does a copy or a
        pickle of a config hold them."""
        state = vars(self).copy()
        for name, value in state.items():
            if callable(value):
                named = value if hasattr(value, "__qualname__") else type(value)
                state[name] = f"{named.__module__}:{named.__qualname__}"
        return state

    @property
    def is_resumed(self) -> bool:
        """Whether --resume names a run to continue rather than being "auto" or none."""
        return self.resume not in (None, "auto")

    @property
    def rollout_size(self) -> int:
        """Number of transitions in a rollout, and so in an iteration, of all processes."""
        return self.num_envs * self.num_steps

    @property
    def iterations(self) -> int:
        """Number of iterations of the whole run: as many whole rollouts as total_steps allows, at
        most num_iterations."""
        affordable = self.total_steps // self.rollout_size
        return min(affordable, self.num_iterations or affordable)


def settings_to_keep(settings: Settings) -> Settings:
    """Return the settings that a checkpoint holds: all that training depends on, but those of
    extensions only where they were used, so that it can do without the others."""
    unused = {name for name in ExtensionFlags.names() if settings[name] == Config.defaults()[name]}
    names = Config.names(scope="training")
    return {name: settings[name] for name in names if name not in unused}


def is_function(name: str, saved: Any) -> bool:
    """Return whether a saved setting is the name of a function, as Config.__getstate__ writes it,
    rather than one of the schedules that are texts."""
    schedules = Config.__dataclass_fields__[name].metadata["schedules"]
    shape, colon, _ = saved.partition(":") if isinstance(saved, str) else ("", "", "")
    return bool(schedules and colon) and shape not in schedules


def import_paths(settings: Settings, name: str) -> list[str]:
    """Return what a setting names that a file alone is not trusted to name: import paths, and
    labels such as <Reach> of classes and functions."""
    return [
        text
        for text in as_texts(settings.get(name, getattr(Config, name)))
        if text.startswith("<")
        or text.partition("(")[0].rpartition(":")[0] not in ("", *TRUSTED_MODULES)
    ]


def to_repeat(config: Config, names: Iterable[str]) -> Settings:
    """Return those settings of a config that a file alone is not trusted to name, as flags that
    repeat them."""
    return {name: getattr(config, name) for name in names if import_paths(vars(config), name)}


def as_texts(setting: Any) -> list[str]:
    """Return a setting, which may be a list, as a list of texts."""
    return setting if isinstance(setting, list) else [str(setting)]
