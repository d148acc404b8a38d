"""Begin with a dataset of Minari, which holds demonstrations, too: write its episodes to a .npz
file, which --demonstrations reads.

python -m examples.minari_dataset D4RL/door/human-v2 door.npz

It needs `pip install "minari[hdf5]"`, and a dataset that `minari download ID` has fetched, from
somebody whom you trust, since Minari reads it. Nested observations and actions need an entry for
each part, such as observations.arm.camera (docs/your-own.md).
"""

import sys

import minari
import numpy as np

KINDS = ("observations", "actions", "rewards", "terminations", "truncations")

dataset_id, path = sys.argv[1:]
episodes = [*minari.load_dataset(dataset_id).iterate_episodes()]
tables = {kind: np.concatenate([vars(one)[kind] for one in episodes]) for kind in KINDS}
ends = np.cumsum([len(one.rewards) for one in episodes]) - 1
tables["truncations"][ends] |= ~tables["terminations"][ends]  # where a recording was cut off
np.savez_compressed(path, **tables)
print(f"{path}: {len(episodes)} episodes, {len(tables['rewards'])} steps")
