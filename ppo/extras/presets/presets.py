"""Find and read presets: values of flags that are not given."""

from collections.abc import Callable
from pathlib import Path

from ppo.config.config import Config
from ppo.config.flags import Settings, check_values
from ppo.config.settings import Environment, kind_of
from ppo.errors import ConfigError
from ppo.extras.presets.flags import PresetFlags
from ppo.system.files import load_json

PRESETS = Path(__file__).with_name("values")


def defaults(given: Settings, environment: Environment) -> tuple[Settings, str]:
    """Return the values of --preset, and what to call them. Raises as load_preset does."""
    preset = given.get("preset", PresetFlags.preset)
    values = load_preset(preset, environment.env_name, lambda: family_of(environment))
    return values, "tuned preset (turned off by --preset=none)"


def what_auto_means(given: Config, environment: Environment) -> Settings:
    """Return the preset that --preset=auto stands for."""
    return {"preset": find_preset(environment.env_name, lambda: family_of(environment))}


def load_preset(preset: str, env_name: str, find_family: Callable[[], str]) -> Settings:
    """Return the flags of a preset in ppo/extras/presets/values, or of the user's own .json file.

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
        return check_values(Config, {**load_json(path)})
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(
            f"--preset={preset}: it cannot be read ({error}): give a file like those in {PRESETS}"
        ) from error


def find_preset(env_name: str, find_family: Callable[[], str]) -> str:
    """Return the name of the environment's preset if there is one, else that of its family, the
    result of find_family. The namespace of an id does not count."""
    name = env_name.rpartition("/")[2]
    return name if name in known_presets() else find_family()


def known_presets() -> list[str]:
    """Return the names of the presets in ppo/extras/presets/values."""
    return [path.stem for path in sorted(PRESETS.glob("*.json"))]


def family_of(environment: Environment) -> str:
    """Return the name of the preset for environments of its kind."""
    return environment.family or kind_of(environment.spaces)
