"""Where demonstrations are: a .npz file, or a dataset of Minari."""

from pathlib import Path

from ppo.demonstrations.format import Demonstrations, read_npz, write_npz
from ppo.errors import ConfigError
from ppo.system.files import new_file

MINARI = "minari:"  # begins the name of a dataset
SUFFIX = ".npz"


def load_demonstrations(name: str) -> Demonstrations:
    """Return the demonstrations that --demonstrations names: FILE.npz or minari:ID. Raises
    ConfigError if there are none, or if they are damaged."""
    try:
        if not name.startswith(MINARI):
            return read_npz(Path(name))
        from ppo.demonstrations.minari_data import read_minari

        return read_minari(name.removeprefix(MINARI))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise unusable(name, reason) from error


def unusable(name: str, reason: object) -> ConfigError:
    """Return the error that says why demonstrations cannot be used."""
    return ConfigError(
        f"--demonstrations={name} cannot be used ({reason}): give what --record has written for "
        "this environment, or a file like it (docs/your-own.md)"
    )


def save_demonstrations(
    name: str, demonstrations: Demonstrations, observation_space, action_space
) -> None:
    """Write demonstrations to FILE.npz or minari:ID. Raises SaveFailed if that fails."""
    if not name.startswith(MINARI):
        write_npz(Path(name), demonstrations)
        return
    from ppo.demonstrations.minari_data import write_minari

    write_minari(name.removeprefix(MINARI), demonstrations, observation_space, action_space)


def check_new(name: str) -> str:
    """Return the name of demonstrations to be written, after making the folder of a file. Raises
    ConfigError if they are there already, or if nothing can be written there."""
    if name.startswith(MINARI):
        from ppo.demonstrations.minari_data import check_new_dataset

        check_new_dataset(name.removeprefix(MINARI))
        return name
    if Path(name).suffix != SUFFIX:
        raise ConfigError(f"--record={name}: give a name that ends with {SUFFIX}, or {MINARI}ID")
    new_file("--record=", name, (SUFFIX,))
    return name
