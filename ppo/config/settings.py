"""From flags to the settings of a run: what flags that are not given are, and every "auto"."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gymnasium.spaces import Box

from ppo.config.config import Config
from ppo.config.flags import Settings, check_values
from ppo.config.learning_flags import EnvironmentFlags
from ppo.envs.env_factories import EnvLike, as_env_name
from ppo.envs.env_kwargs import describe_wrappers
from ppo.envs.families import FAMILIES
from ppo.envs.probe import Spaces, find_env, spaces_of
from ppo.envs.spaces import scaled_bounds
from ppo.errors import ConfigError
from ppo.extensions import Model, functions_of
from ppo.models import MODELS, choose_model
from ppo.models.observation_parts import images_of, vectors_of
from ppo.system.hardware import available_cores, find_device, has_bfloat16
from ppo.system.state_dict import State


@dataclass(frozen=True)
class RunSettings:
    """What a run or a policy begins with.

    given: its settings as they were given, some of which may be "auto"; config: the same, with
    every "auto" replaced but those that the learner resolves; spaces: of the environment; auto:
    what "auto" stands for in this run, by flag; notes: for the user; checkpoint: the path and state
    of the run to resume, if they were read for these settings."""

    given: Config
    config: Config
    spaces: Spaces
    auto: Settings
    notes: tuple[str, ...] = ()
    checkpoint: tuple[Path, State] | None = None

    def __getstate__(self) -> Settings:
        """Return what other processes are sent: without the checkpoint, which they get as the run
        is restored."""
        return {**vars(self), "checkpoint": None}

    def with_changes(self, changes: Settings) -> "RunSettings":
        """Return these settings with other values of some flags. Raises ConfigError as Config."""
        given = replace(self.given, **changes)
        return replace(self, given=given, config=replace(self.config, **changes))

    def to_save(self) -> Settings:
        """Return the settings to save with a run, as JSON values. "auto" stays where another value
        would not make it another run: it is resolved anew where the run is resumed."""
        given = self.given.__getstate__()
        fixed = {*Config.names(fixed=True)}
        return {
            name: "auto" if given[name] == "auto" and name not in fixed else value
            for name, value in self.config.__getstate__().items()
        }


def settings_of(flags: Settings | Config, saved: Settings | None = None) -> RunSettings:
    """Return the settings that flags lead to: of a command line, from Python or of a saved run.

    flags: values or their texts, which take precedence; or a Config, which is taken as it is.
    saved: settings of a run, which count instead of the defaults of extensions.
    Raises ConfigError for an unknown flag, an unsuitable value, and as those extensions do, for
    a device that cannot be used, or a flag that means nothing for the environment or network;
    EnvironmentUnavailable; WorkerError if the environment raises, crashes or hangs; ModelMismatch
    if the model cannot read the observations."""
    if isinstance(flags, Config):
        environment = Environment(vars(flags))
        if flags.env_name != environment.env_name:
            flags = replace(flags, env_name=environment.env_name)
        return _resolve(flags, environment)
    if "num_minibatches" in flags:
        flags = {"batch_size": None, **flags}
    given = check_values(Config, {**(saved or {}), **flags})
    environment = Environment(given)
    asked = given.get("env_name", Config.env_name)
    notes = []
    if asked != environment.env_name:
        notes.append(f"{asked} is now {environment.env_name}")
    tuned: Settings = {}
    if saved is None:
        for defaults in functions_of("defaults"):
            values, about = defaults(given, environment)
            values = {name: value for name, value in values.items() if name not in given}
            if values:
                listed = " ".join(f"{name}={value}" for name, value in values.items())
                notes.append(f"{about}: {listed}")
            tuned |= values
        environment = environment.with_values({**tuned, **given})
    merged: Settings = {**tuned, **given, "env_name": environment.env_name}
    size = environment.spaces.team_size
    num_envs = merged.get("num_envs", Config.num_envs)
    if "num_envs" not in given and num_envs % size:
        merged["num_envs"] = -(-num_envs // size) * size
        notes.append(f"num_envs={merged['num_envs']}: whole groups of {size}")
    config = Config(**merged)
    settings = _resolve(config, environment)
    return replace(settings, notes=(*notes, *settings.notes))


def tuned_config(env: EnvLike, **flags: Any) -> Config:
    """Return the config that a command line with these flags leads to: the values tuned for the
    environment or its family, except where flags replace them.

    env: an id, a class or a function, as for ppo.trainer.train. Raises as settings_of does, and
    ConfigError if env is none of these."""
    return settings_of({**flags, "env_name": as_env_name(env)}).given


class Environment:
    """The environment that flags name, looked at once.

    values: of flags; those that are missing have their defaults. env_name: its present id; family:
    the name of the class of FAMILIES that makes it, or None; auto: what "auto" means for flags of
    the environment. Raises as settings_of does."""

    def __init__(self, values: Settings) -> None:
        names = {*EnvironmentFlags.names(), *Config.names(environment=True)}
        names.remove("num_envs")
        self.flags = {name: values.get(name, Config.defaults()[name]) for name in names}
        config: Any = SimpleNamespace(**self.flags)
        self.env_name, self.family, self.auto = find_env(config)
        self.flags["env_name"] = self.env_name

    def with_values(self, values: Settings) -> "Environment":
        """Return this, or another one if these values are not those that it was looked at with."""
        own = {name: value for name, value in values.items() if name in self.flags}
        if {**self.flags, **own, "env_name": self.env_name} == self.flags:
            return self
        return Environment({**own, "env_name": self.env_name})

    @cached_property
    def spaces(self) -> Spaces:
        """The Spaces of its observations and actions."""
        auto = {
            name: self.auto[name]
            for name, x in self.flags.items()
            if x == "auto" and name in self.auto
        }
        config: Any = SimpleNamespace(**{**self.flags, **auto})
        return spaces_of(config)


def _resolve(given: Config, environment: Environment) -> RunSettings:
    """Replace every "auto". Raises as settings_of does."""
    _check_environment_flags(given, environment)
    settings = settings_with(given, environment.spaces, environment.auto)
    added: Settings = {}
    for meanings in functions_of("auto"):
        added |= meanings(given, environment)
    return replace(settings, auto={**added, **settings.auto})


def settings_with(given: Config, spaces: Spaces, env_auto: Settings | None = None) -> RunSettings:
    """Replace every "auto" of an environment whose spaces are known, which is not looked at.

    env_auto: what "auto" means for flags of the environment. Raises ConfigError for a device that
    cannot be used, or a flag that means nothing for the network, ModelMismatch."""
    model = choose_model(given.model, spaces.observations)
    entry = MODELS.get(model, MODELS["mlp"])  # a class of the user's has the mlp's defaults
    images = images_of(spaces.observations)
    vectors = vectors_of(spaces.observations)
    device = find_device(given.device, bool(images))
    on_cuda = device.startswith("cuda")
    _check_network_flags(given, entry, bool(images))
    meanings: Settings = {
        **(env_auto or {}),
        "model": choose_model("auto", spaces.observations),
        "num_workers": min(given.num_envs // spaces.team_size, available_cores()),
        "frame_stack": 4 if images else 1,
        "normalize_observations": bool(vectors),
        "normalize_rewards": not images and not given.clip_rewards,
        "hidden_size": entry.hidden_size,
        "share_trunk": bool(images) or entry.shares_trunk,
        "inference": "learner" if images and on_cuda else "worker",
        "log_std_init": 0.0,
        "precision": "bfloat16" if images and has_bfloat16(device) else "float32",
    }
    for resolve in functions_of("resolve"):
        meanings |= resolve(given)
    auto = {name: value for name, value in meanings.items() if getattr(given, name) == "auto"}
    config = replace(given, device=device, **auto)
    notes = _action_notes(config, spaces)
    if spaces.wrappers:
        notes = (describe_wrappers(spaces.wrappers), *notes)
    return RunSettings(given, config, spaces, meanings, notes)


def _action_notes(config: Config, spaces: Spaces) -> tuple[str, ...]:
    """Return a note on the numbers of actions that are scaled, if there are some."""
    bounds = scaled_bounds(spaces.actions)
    if not bounds or config.squash_actions or not config.scale_actions:
        return ()
    listed = ", ".join([*bounds[:3], *(["..."] if len(bounds) > 3 else [])])
    return (
        f"actions: scaled from [-1, 1] to their bounds, {listed}, which a standard normal does not "
        "fit (turned off by --scale_actions=False)",
    )


def kind_of(spaces: Spaces) -> str:
    """Return the kind of an environment by its observations and actions: "images", "categories",
    "continuous" or "discrete"."""
    if images_of(spaces.observations):
        return "images"
    if _has_kind(spaces, "categories"):
        return "categories"
    return "continuous" if isinstance(spaces.actions, Box) else "discrete"


def _has_kind(spaces: Spaces, kind: str) -> bool:
    """Return whether a part of the observations is of a kind of ppo.envs.observations.ShownPart."""
    return any(part.kind == kind for part in getattr(spaces.observations, "shown", {}).values())


def _check_environment_flags(config: Config, environment: Environment) -> None:
    """Raise ConfigError for a flag that means nothing for this environment."""
    spaces = environment.spaces
    images = images_of(spaces.observations)
    vectors = vectors_of(spaces.observations)
    meaningless = [] if images else ["screen_size"]
    if not images and not _has_kind(spaces, "categories"):
        meaningless.append("image")
    for family in FAMILIES:
        if family.name != environment.family:
            meaningless += family.fields
    for name in meaningless:
        if getattr(config, name) not in (getattr(Config, name), environment.auto.get(name)):
            raise ConfigError(
                f"--{name} means nothing for {config.env_name}: leave it out, wherever it is set"
            )
    if images and config.image == "color" and not _has_kind(spaces, "color"):
        raise ConfigError(
            f"--image=color: no image of {config.env_name} has three channels, red, green and "
            "blue: leave it out, all channels are kept"
        )
    if not vectors and config.normalize_observations is True:
        raise ConfigError(
            "--normalize_observations is for vectors: leave it out, images are scaled to [0, 1]"
        )
    if left := config.num_envs % spaces.team_size:
        more = config.num_envs + spaces.team_size - left
        raise ConfigError(
            f"--num_envs={config.num_envs}: {config.env_name} comes in groups of "
            f"{spaces.team_size}, such as the agents of a team: give a multiple of that, such as "
            f"{more}"
        )


def _check_network_flags(config: Config, entry: Model, images: bool) -> None:
    """Raise ConfigError for a flag that means nothing for this network, on this device."""
    if entry.shares_trunk and config.share_trunk is False:
        raise ConfigError(
            f"--share_trunk=False: leave it out, policy and value share that of {config.model}"
        )
    is_other = entry.reads != "vectors" or config.share_trunk is True
    if is_other and (config.policy_layers or config.value_layers):
        raise ConfigError(
            "--policy_layers and --value_layers are for an mlp that is not shared: leave them out, "
            "or give --model=mlp --share_trunk=False"
        )
    if not images and config.precision == "bfloat16":
        raise ConfigError("--precision=bfloat16 is for images: leave it out, or give float32")
