"""From flags to the settings of a run: presets, and what every "auto" stands for."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium.spaces import Box

from ppo.config import Config
from ppo.envs.make import Spaces, find_spec, look
from ppo.errors import ConfigError, reason, suggest
from ppo.flags import checked
from ppo.imports import is_path
from ppo.models import HIDDEN_SIZES, RECURRENT
from ppo.process import available_cores, find_device, has_bfloat16

PRESETS = Path(__file__).with_name("presets")


@dataclass(frozen=True)
class Settings:
    """What a run begins with. given: its settings, some of which may be "auto"; config: the same,
    with every "auto" resolved but those of clip_value_coef and learner; notes: for the user."""

    given: Config
    spaces: Spaces
    notes: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        return self.spaces.config


def settle(given: Mapping[str, Any], callbacks: Sequence[Any] = ()) -> Settings:
    """Return the settings that flags, as values or texts, lead to.

    Raises ConfigError for an unknown flag, an unsuitable value, or an environment, a network or a
    device that cannot be used."""
    values = checked(given, [Config])
    env_name = values.get("env_name", Config.env_name)
    spec = find_spec(env_name, {})
    notes = []
    if isinstance(env_name, str) and not is_path(env_name) and spec.id != env_name:
        notes.append(f"{env_name} is now {spec.id}")
        env_name = values["env_name"] = spec.id
    preset = values.get("preset", "auto")
    tuned = _read_preset(spec.id.rpartition("/")[2] if preset == "auto" else preset, preset)
    spaces = look(Config(**{**tuned, **values, **_LOOK}))
    is_atari = spaces.make_env.is_atari
    if preset == "auto" and not tuned:
        tuned = _read_preset("Atari" if is_atari else kind_of(spaces), preset)
    if "num_minibatches" in values:
        tuned.pop("batch_size", None)
    tuned = {name: value for name, value in tuned.items() if name not in values}
    if tuned:
        listed = " ".join(f"{name}={value}" for name, value in tuned.items())
        notes.append(f"tuned preset (turned off by --preset=none): {listed}")
    config = Config(**{**tuned, **values}, callbacks=(*callbacks,))
    resolved = resolve(config, spaces, is_atari=is_atari)
    return Settings(config, spaces.with_config(resolved), tuple(notes))


_LOOK = {"total_steps": 0, "num_minibatches": 1, "batch_size": None}  # for a first look


def resolve(config: Config, spaces: Spaces, *, is_atari: bool = False) -> Config:
    """Replace every "auto". Raises ConfigError for a device that cannot be used, or a flag that
    does not suit the observations."""
    has_images = bool(spaces.layout.images)
    _check_suitable(config, spaces, is_atari)
    device = find_device(config.device, has_images)
    name = config.model
    if name == "auto":
        name = "cnn" if has_images else "mlp"
    if name in ("mlp", "cnn", "cnn_small", "impala") and (name == "mlp") == has_images:
        reads, fitting = ("numbers", "cnn") if has_images else ("images", "mlp")
        raise ConfigError(
            f"--model={name} reads {reads}, which are not what {spaces.observations} holds: give "
            f"--model={fitting}"
        )
    meanings = {
        "model": name,
        "hidden_size": HIDDEN_SIZES.get(name, HIDDEN_SIZES["mlp"]) if isinstance(name, str) else 64,
        "frame_skip": 4 if is_atari else 1,
        "frame_stack": 4 if has_images else 1,
        "normalize_observations": spaces.layout.has_numbers,
        "normalize_rewards": not has_images and not config.clip_rewards,
        "share_trunk": has_images or name in RECURRENT,
        "log_std_init": -2.0 if config.use_sde else 0.0,
        "num_workers": min(config.num_envs, available_cores()),
        "precision": "bfloat16" if has_images and has_bfloat16(device) else "float32",
        "inference": "learner" if has_images and device.startswith("cuda") else "worker",
    }
    auto = {name: value for name, value in meanings.items() if getattr(config, name) == "auto"}
    return dataclasses.replace(config, device=device, **auto)


def _check_suitable(config: Config, spaces: Spaces, is_atari: bool) -> None:
    """Raise ConfigError for a flag that has no meaning for these observations and actions."""
    layout = spaces.layout
    if config.end_on_life_loss and not is_atari:
        raise ConfigError("--end_on_life_loss is for Atari games: leave it out")
    if config.screen_size != Config.screen_size and not layout.images:
        raise ConfigError("--screen_size is for images: leave it out")
    if config.normalize_observations is True and not layout.has_numbers:
        raise ConfigError("--normalize_observations is for numbers, these are images: leave it out")
    if config.use_sde and not isinstance(spaces.actions, Box):
        raise ConfigError(
            f"--use_sde is for continuous actions, these are {spaces.actions}: leave it out"
        )
    if config.share_trunk is False and config.model in RECURRENT:
        raise ConfigError(f"--share_trunk=False: --model={config.model} shares its trunk")


def kind_of(spaces: Spaces) -> str:
    """Return the name of the preset for environments of a kind."""
    if spaces.layout.images:
        return "images"
    if any(part.kind == "categories" for part in spaces.layout.parts):
        return "categories"
    return "continuous" if isinstance(spaces.actions, Box) else "discrete"


def _read_preset(name: str, flag: str) -> dict[str, Any]:
    """Return the flags of a preset, by its name or file. flag: what --preset is."""
    known = [path.stem for path in sorted(PRESETS.glob("*.json"))]
    if flag == "none" or (flag == "auto" and name not in known):
        return {}
    if name not in known and not name.endswith(".json"):
        raise ConfigError(f"--preset={name} is unknown{suggest(name, known)}")
    path = Path(name) if name.endswith(".json") else PRESETS / f"{name}.json"
    try:
        return checked(json.loads(path.read_text(encoding="utf-8-sig")), [Config])
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"--preset={flag} cannot be read ({reason(error)})") from error
