"""Replace every auto by its value for a run, with its environment and on this machine."""

from dataclasses import replace

from gymnasium.spaces import Box

from ppo.config.config import Config, find_preset, load_preset
from ppo.config.flags import Settings
from ppo.config.learning_flags import EnvironmentFlags
from ppo.config.run_flags import TimeoutFlags
from ppo.envs.env_factories import as_env_name
from ppo.envs.families import FAMILIES
from ppo.envs.first_look import Spaces, find_env, spaces_of
from ppo.envs.isolation import ISOLATION
from ppo.errors import ConfigError, suggest
from ppo.models import MODELS, ModelEntry, choose_model
from ppo.models.parts import images_of, vectors_of
from ppo.system.hardware import available_cores, find_device, has_bfloat16


def resolve(config: Config) -> tuple[Config, Spaces]:
    """Return the config with every auto replaced, and the Spaces of its environment.

    Raises EnvironmentUnavailable; WorkerError if the environment raises, crashes or hangs;
    ModelMismatch if the model cannot read the observations; ConfigError if the device cannot be
    used or a flag means nothing for this environment or network.
    """
    env_name, own_family, meanings = find_env(config)
    config = _replace_auto(replace(config, env_name=env_name), **meanings)
    spaces = spaces_of(config)
    model = choose_model(config.model, spaces.observations)
    entry = MODELS.get(model, MODELS["mlp"])  # a class of the user's has the mlp's defaults
    images = images_of(spaces.observations)
    vectors = vectors_of(spaces.observations)
    device = find_device(config.device, bool(images))
    on_cuda = device.startswith("cuda")
    _check_environment_flags(config, spaces, own_family, meanings)
    _check_network_flags(config, entry, on_cuda)
    meanings = {
        **meanings,
        "model": choose_model("auto", spaces.observations),
        "num_workers": min(config.num_envs, available_cores()),
        "clip_value_coef": config.clip_coef,
        "frame_stack": 4 if images else 1,
        "normalize_observations": bool(vectors),
        "normalize_rewards": not images and not config.clip_rewards,
        "hidden_size": entry.hidden_size,
        "share_trunk": bool(images) or entry.is_recurrent,
        "inference": "learner" if images and on_cuda and not config.overlap else "worker",
        "log_std_init": -2.0 if config.use_sde else 0.0,
        "precision": "bfloat16" if images and has_bfloat16(device) else "float32",
    }
    resolved = _replace_auto(replace(config, device=device), **meanings)
    # The preset stays "auto": a resumed run must not differ from what earlier versions saved.
    preset = find_preset(env_name, lambda: own_family or family_of(spaces))
    auto = {name: x for name, x in meanings.items() if not callable(x)}  # which JSON cannot hold
    return resolved, spaces._replace(auto={"preset": preset, **auto})


def with_tuned(given: Settings, saved: Settings) -> tuple[Config, Settings]:
    """Return the config that flags lead to, and the values of --preset that are in it.

    given: flags, which take precedence; saved: settings of a run to resume, which replace a preset,
    or {} for a new run. Raises EnvironmentUnavailable or WorkerError as resolve does, ConfigError
    for an unknown flag, an unsuitable value, or a preset that load_preset refuses.
    """
    plain = vars(Config())
    if unknown := given.keys() - plain:
        wrong = min(unknown)
        raise ConfigError(f"unknown flag --{wrong}: {suggest(wrong, plain, 'see ppo --help')}")
    asked = {**plain, **saved, **given}
    names = {*EnvironmentFlags.names(), *TimeoutFlags.names()} - {"num_envs"}
    config = Config(**{name: asked[name] for name in names})
    env_name, own_family, meanings = find_env(config)

    def find_family() -> str:
        todays = _replace_auto(replace(config, env_name=env_name), **meanings)
        return own_family or family_of(spaces_of(todays))

    tuned = {} if saved else load_preset(asked["preset"], env_name, find_family)
    if "num_minibatches" in given:
        given = {"batch_size": None, **given}
    tuned = {name: value for name, value in tuned.items() if name not in given}
    return Config(**{**saved, **tuned, **given, "env_name": env_name}), tuned


def tuned_config(env, **flags) -> Config:
    """Return the config that a command line with these flags leads to: the values tuned for the
    environment or its family, except where flags replace them.

    env: an id, a class or a function, as for ppo.trainer.train. Raises as with_tuned does, and
    ConfigError if env is none of these."""
    ISOLATION.start()
    return with_tuned({**flags, "env_name": as_env_name(env)}, {})[0]


def family_of(spaces: Spaces) -> str:
    """Return the family of an environment by its observations and actions: "images", "categories",
    "continuous" or "discrete", the name of a preset in ppo/config/presets."""
    if images_of(spaces.observations):
        return "images"
    if _has_categories(spaces):
        return "categories"
    return "continuous" if isinstance(spaces.actions, Box) else "discrete"


def _has_categories(spaces: Spaces) -> bool:
    """Return whether a part of the observations is an image of categories."""
    treatment = getattr(spaces.observations, "treatment", {})
    return any("categories" in words for words in treatment.values())


def _check_environment_flags(
    config: Config, spaces: Spaces, own_family: str | None, meanings: Settings
) -> None:
    """Raise ConfigError for a flag that means nothing for this environment.

    own_family, meanings: as find_env returns them."""
    images = images_of(spaces.observations)
    vectors = vectors_of(spaces.observations)
    meaningless = [] if images else ["screen_size"]
    if not images and not _has_categories(spaces):
        meaningless.append("image")
    for family in FAMILIES:
        if family.name != own_family:
            meaningless += family.fields
    for name in meaningless:
        if getattr(config, name) not in (getattr(Config, name), meanings.get(name)):
            raise ConfigError(
                f"--{name} means nothing for {config.env_name}: leave it out, and give no "
                "preset that sets it"
            )
    if not vectors and config.normalize_observations is True:
        raise ConfigError(
            "--normalize_observations is for vectors: leave it out, images are scaled to [0, 1]"
        )
    if config.stop_when == "solved" and spaces.reward_threshold is None:
        raise ConfigError(
            f"--stop_when=solved: {config.env_name} names no reward_threshold, give solved>=NUMBER"
        )
    for key in (config.normalize_keys or "").split(","):
        if key and key not in vectors:
            raise ConfigError(
                f"--normalize_keys={key} is no part that can be standardised: give some of "
                f"{', '.join(vectors) or 'none'}"
            )


def _check_network_flags(config: Config, entry: ModelEntry, on_cuda: bool) -> None:
    """Raise ConfigError for a flag that means nothing for this network, on this device."""
    if entry.is_recurrent and config.share_trunk is False:
        raise ConfigError(
            "--share_trunk=False: leave it out, policy and value share the state of lstm and gru"
        )
    is_other = entry.reads != "vectors" or config.share_trunk is True
    if is_other and (config.policy_layers or config.value_layers):
        raise ConfigError(
            "--policy_layers and --value_layers are for an mlp that is not shared: leave them out, "
            "or give --model=mlp --share_trunk=False"
        )
    if entry.reads == "vectors" and config.precision == "bfloat16":
        raise ConfigError("--precision=bfloat16 is for images: leave it out, or give float32")
    if config.compile and not on_cuda:
        raise ConfigError(
            "--compile=True is for --device=cuda, elsewhere it takes longer to compile than it can "
            "save: give --compile=False"
        )


def _replace_auto(config: Config, **meanings) -> Config:
    """Return the config with these values where it has "auto"."""
    return replace(
        config, **{name: x for name, x in meanings.items() if getattr(config, name) == "auto"}
    )
