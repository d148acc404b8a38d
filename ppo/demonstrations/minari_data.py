"""Read and write datasets of Minari (minari.farama.org), which are in its local folder."""

import warnings
from collections import defaultdict
from functools import reduce
from importlib import import_module
from operator import getitem
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.demonstrations.format import (
    Demonstrations,
    Tables,
    assemble,
    label_of,
    nest,
    observed_leaves,
)
from ppo.envs.spaces import ACTION_MASK, holds_numbers, leaves
from ppo.errors import ConfigError, SaveFailed
from ppo.system.hardware import physical_memory

INSTALL = 'pip install "minari[hdf5]>=0.5"'


def read_minari(dataset_id: str) -> Demonstrations:
    """Read a dataset, which must be in Minari's folder. Raises ConfigError without Minari,
    ValueError if there is no such dataset, or if it is damaged or too large."""
    minari = _import_minari()
    tables: dict[str, list[ndarray]] = defaultdict(list)
    try:
        dataset = minari.load_dataset(dataset_id)
        _check_size(dataset)
        for episode in dataset.iterate_episodes():
            for name, table in _tables_of(episode, dataset).items():
                tables[name].append(table)
        for about in dataset.storage.get_episode_metadata(range(dataset.total_episodes)):
            seed = about.get("seed")
            tables["seeds"].append(np.array([-1 if seed is None else seed]))
    except FileNotFoundError:
        raise ValueError(f"it is not here: minari download {dataset_id}") from None
    except ValueError:
        raise
    except Exception as error:  # whatever Minari and h5py raise for damaged content
        raise ValueError(f"it is damaged: {type(error).__name__}: {error}") from error
    return assemble({name: np.concatenate(parts) for name, parts in tables.items()})


def write_minari(
    dataset_id: str, demonstrations: Demonstrations, observation_space, action_space
) -> None:
    """Write a new dataset. Raises ConfigError if it is there already, or cannot hold the
    observations, SaveFailed if it cannot be written."""
    check_new_dataset(dataset_id)
    if not all(holds_numbers(leaf) for _, leaf in leaves(observation_space)):
        raise ConfigError(
            f"--record=minari:{dataset_id}: Minari wants all of the observations, and text and "
            "graphs are not recorded: give a .npz file"
        )
    minari = _import_minari()
    rewards = demonstrations.rewards
    if rewards is None:
        rewards = np.zeros(len(demonstrations.terminations))
    first_step = 0
    episodes = []
    for i, rows in enumerate(demonstrations.rows):
        steps = slice(first_step, first_step + len(rows) - 1)
        first_step = steps.stop

        seen = slice(rows.start, rows.stop)
        masks = {name: table[seen] for name, table in demonstrations.action_masks.items()}
        episodes.append(
            minari.data_collector.EpisodeBuffer(
                id=i,
                seed=None if demonstrations.seeds[i] < 0 else int(demonstrations.seeds[i]),
                observations=_cut(observation_space, demonstrations.observations, seen),
                actions=_cut(action_space, demonstrations.actions, steps),
                rewards=rewards[steps],
                terminations=demonstrations.terminations[steps],
                truncations=demonstrations.truncations[steps],
                infos={ACTION_MASK: masks.get("", masks)} if masks else {},
            )
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about an author and an environment to name
            minari.create_dataset_from_buffers(
                dataset_id,
                episodes,
                observation_space=observation_space,
                action_space=action_space,
                description="Recorded by ppo-trainer.",
                jpeg_encoding=False,
            )
    except Exception as error:  # whatever Minari and h5py raise
        raise SaveFailed(f"minari:{dataset_id} cannot be written ({error})") from error


def check_new_dataset(dataset_id: str) -> None:
    """Raise ConfigError without Minari, for an id that it does not take, or for one that exists."""
    minari = _import_minari()
    try:
        minari.dataset.minari_dataset.parse_dataset_id(dataset_id)
        minari.load_dataset(dataset_id)
    except FileNotFoundError:
        return
    except Exception as error:  # a folder of this name holds something else
        raise ConfigError(
            f"--record=minari:{dataset_id} cannot be written ({error}): give a name like "
            "minari:lander/expert-v0"
        ) from error
    raise ConfigError(
        f"--record=minari:{dataset_id} is there already, and nothing is overwritten: give another "
        "name"
    )


def _cut(space, tables: Tables, rows: slice) -> Any:
    """Return some rows of the tables of a space's parts, nested as it is."""
    return nest(space, lambda name: tables[name][rows])


def _tables_of(episode, dataset) -> dict[str, ndarray]:
    """Return the tables of an episode, by the names that they have in a .npz file."""
    truncations = np.array(episode.truncations, np.bool_)
    truncations[-1:] |= not episode.terminations[-1]  # those that were cut off say nothing
    found = {
        "rewards": episode.rewards,
        "terminations": episode.terminations,
        "truncations": truncations,
    }
    for path, _ in observed_leaves(dataset.observation_space):
        found[label_of("observations", path)] = reduce(getitem, path, episode.observations)
    for path, _ in leaves(dataset.action_space):
        found[label_of("actions", path)] = reduce(getitem, path, episode.actions)
    masks = (episode.infos or {}).get(ACTION_MASK, {})
    for name, mask in (masks if isinstance(masks, dict) else {"": masks}).items():
        found[label_of("action_masks", [name] if name else [])] = mask
    return {name: np.asarray(table) for name, table in found.items()}


def _check_size(dataset) -> None:
    """Raise ValueError if the arrays of a dataset would take too much memory."""
    h5py = import_module("h5py")
    num_bytes = 0

    def add(name: str, entry) -> None:
        nonlocal num_bytes
        if isinstance(entry, h5py.Dataset):
            num_bytes += entry.nbytes

    for path in dataset.storage.data_path.glob("*.hdf5"):
        with h5py.File(path) as file:
            file.visititems(add)
    if num_bytes > physical_memory() // 4:
        raise ValueError("it would take more than a quarter of this machine's memory")


def _import_minari() -> Any:
    """Return the package. Raises ConfigError if it cannot be imported."""
    try:
        import_module("h5py")
        return import_module("minari")
    except ImportError as error:
        raise ConfigError(f"minari:ID needs Minari ({error}): {INSTALL}") from error
