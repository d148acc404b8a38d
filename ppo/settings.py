"""From flags to the settings of a run: presets, and what every "auto" stands for."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gymnasium.spaces import Box

from ppo.callbacks import Callback, overriding
from ppo.config import Config, name_of
from ppo.envs.make import Spaces, find_spec, look
from ppo.errors import ConfigError, suggest
from ppo.extras import NETWORKS
from ppo.flags import checked, flags_of
from ppo.imports import is_path
from ppo.models import HIDDEN_SIZES
from ppo.process import available_cores, find_device, has_bfloat16

PRESETS = Path(__file__).with_name("presets")
LOOK = {"total_steps": 0, "num_minibatches": 1, "batch_size": None}  # settings of a first look


@dataclass(frozen=True)
class Settings:
    """What a run begins with. given: with "auto"; spaces.config: the same, with every "auto"
    resolved that depends on spaces or on the machine; notes: for the user."""

    given: Config
    spaces: Spaces
    notes: list[str]


def settle(given: Mapping[str, Any], callbacks: Sequence[Callback] = ()) -> Settings:
    """Return the settings that flags, as values or texts, lead to. Raises ConfigError for an
    unknown flag, an unsuitable value, or what cannot be used."""
    values = checked(given, flags_of(Config))
    env_name = values.get("env_name", Config.env_name)
    spec = find_spec(env_name)
    notes = []
    if isinstance(env_name, str) and not is_path(env_name) and spec.id != env_name:
        notes.append(f"{env_name} is now {spec.id}")
        values["env_name"] = spec.id
    preset = values.get("preset", "auto")
    tuned = _read_preset(spec.id.rpartition("/")[2] if preset == "auto" else preset, preset)
    spaces = look(Config(**{**tuned, **values, **LOOK}))
    if preset == "auto" and not tuned:
        tuned = _read_preset(_kind_of(spaces), preset)
    if "num_minibatches" in values:
        tuned.pop("batch_size", None)
    tuned = {name: value for name, value in tuned.items() if name not in values}
    if tuned:
        listed = " ".join(f"{name}={value}" for name, value in tuned.items())
        notes.append(f"tuned preset (disable with --preset=none): {listed}")
    config = Config(**tuned, **values, hooks=(*overriding(callbacks, "on_model"),))
    spaces = resolve(config, spaces)
    if spaces.has_masks:
        notes.append("action masks are applied, and hidden from the policy")
    notes += spaces.layout.hints
    if config.eval_env is not None:
        flag = f"--eval_env={name_of(config.eval_env)}"
        try:
            other = look(spaces.of_evaluations().config)
        except ConfigError as error:
            raise ConfigError(f"{flag}: {error}") from error
        if (other.observations, other.actions) != (spaces.observations, spaces.actions):
            raise ConfigError(f"{flag} has other spaces than the training environment")
    return Settings(config, spaces, notes)


def resolve(config: Config, spaces: Spaces) -> Spaces:
    """Return spaces with "auto" resolved in their config. Raises ConfigError for unfit flags."""
    has_images = bool(spaces.layout.images)
    has_numbers = spaces.layout.has_numbers
    device = find_device(config.device, has_images)
    fitting = "cnn" if has_images else "mlp"
    name = fitting if config.model == "auto" else config.model
    if name in ("mlp", "cnn", "cnn_small") and (name == "mlp") == has_images:
        what = f"--model={name} cannot read the observations {spaces.observations}"
        ways = [*spaces.layout.hints, f"give --model={fitting}"]
        raise ConfigError(f"{what}: {', or '.join(ways)}")
    unsuitable = {
        "--end_on_life_loss is for Atari games": config.end_on_life_loss
        and not spaces.make_env.is_atari,
        "--screen_size is for images": config.screen_size != Config.screen_size and not has_images,
        "--normalize_observations is for numbers": config.normalize_observations is True
        and not has_numbers,
        "--use_sde is for continuous actions": config.use_sde
        and not isinstance(spaces.actions, Box),
        f"--hidden_size={config.hidden_size} is for mlp": "," in str(config.hidden_size)
        and name != "mlp",
    }
    for sentence, is_wrong in unsuitable.items():
        if is_wrong:
            raise ConfigError(f"{sentence}: remove it")
    meanings: dict[str, Any] = {
        "model": name,
        "hidden_size": HIDDEN_SIZES.get(name, 64),
        "frame_stack": 4 if has_images else 1,
        "normalize_observations": has_numbers,
        "normalize_rewards": not has_images and not config.clip_rewards,
        "share_trunk": has_images,
        "log_std_init": -2.0 if config.use_sde else 0.0,
        "num_workers": min(config.num_envs, available_cores()),
        "precision": "bfloat16" if has_images and has_bfloat16(device) else "float32",
        "inference": "learner" if has_images and device.startswith("cuda") else "worker",
        **NETWORKS.get(name, ("", {}))[1],
    }
    auto = {name: value for name, value in meanings.items() if getattr(config, name) == "auto"}
    return spaces.with_config(replace(config, device=device, **auto))


def _kind_of(spaces: Spaces) -> str:
    if spaces.layout.images:
        return "Atari" if spaces.make_env.is_atari else "images"
    return "continuous" if isinstance(spaces.actions, Box) else "discrete"


def _read_preset(name: str, flag: str) -> dict[str, Any]:
    known = [path.stem for path in PRESETS.glob("*.json")]
    if flag == "none" or (flag == "auto" and name not in known):
        return {}
    if name not in known:
        raise ConfigError(f"--preset={name} is unknown{suggest(name, known)}")
    return checked(json.loads((PRESETS / f"{name}.json").read_text()), flags_of(Config))
