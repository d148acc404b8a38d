"""Sample actions for environments of a run, in a worker process or in the trainer."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.envs.make import Spaces
from ppo.envs.normalize import Arrays, NormalizeObservation
from ppo.envs.observations import NUMBERS, Layout
from ppo.envs.seeding import Stream, seed_sequence

MakeActor = Callable[[ndarray], Any]


def observer(layout: Layout, normalize: NormalizeObservation) -> Callable[[Arrays], Any]:
    """Return a function from rows (n, ...) of observation tables to what a network reads."""
    if len(layout.tables) == 1:
        return lambda rows: normalize(rows[NUMBERS])
    return lambda rows: layout.named(normalize.tables(rows))


class Sampler:
    """Write the actions of a rollout, row by row, for some environments of a run. arrays: their
    columns of the run's tables, and what else is shared; make_actor: weights (P,) -> an actor, such
    as ppo.models.actor.Actor, which acts by the weights that begin copies."""

    def __init__(
        self, spaces: Spaces, arrays: Arrays, env_ids: range, make_actor: MakeActor
    ) -> None:
        self.arrays = arrays
        self.actor = make_actor(arrays["weights"])
        self.seed = spaces.config.seed
        self.env_ids = env_ids
        self.observed = spaces.layout.tables
        self.observe = observer(spaces.layout, NormalizeObservation(arrays, spaces.config))

    def begin(self, iteration: int) -> None:
        """Load the current weights, and draw the noise of a whole rollout, (T, n, *noise)."""
        self.actor.refresh()
        noise = []
        for env_id in self.env_ids:
            sequence = seed_sequence(self.seed, Stream.ACTION, env_id, iteration)
            generator = np.random.default_rng(sequence)
            noise.append(self.actor.draw_noise(generator, len(self.arrays["actions"])))
        self.noise = np.stack(noise, 1)

    def __call__(self, t: int, columns: slice = slice(None)) -> None:
        """Write the actions of row t, its features, and the recurrent states of row t + 1."""
        tables = self.arrays
        states = tables["states"][t + 1, columns]
        states[:] = tables["states"][t, columns]
        tables["actions"][t, columns] = self.actor(
            self.observe({name: tables[name][t, columns] for name in self.observed}),
            self.noise[t, columns],
            mask=tables["action_masks"][t, columns],
            states=states,
            features=tables["features"][t, columns],
        )
