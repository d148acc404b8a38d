"""Sample actions for environments of a run, in a worker process or in the trainer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.envs.seeding import Stream, seed_sequence
from ppo.envs.shared_memory import SharedArray


@dataclass
class RolloutSampler:
    """Sample actions, row by row, for some environments of a run.

    make_actor: from weights (P,) to a ppo.models.actor.Actor, which acts with the weights as they
    are when a rollout begins; normalize: maps observations to the actor's input; seed: the run's;
    env_ids: the environments' numbers in the whole run, on which their noise depends; rollout: the
    environments' columns (T, n)."""

    make_actor: Callable[[ndarray], Any]
    weights: SharedArray
    normalize: Callable[[ndarray], ndarray]
    seed: int
    env_ids: Sequence[int]
    rollout: Any

    def __post_init__(self) -> None:
        self.actor = self.make_actor(self.weights.array)
        self.num_steps = len(self.rollout.actions)

    def begin(self, iteration: int) -> None:
        """Load the current weights and draw the noise of a whole rollout, (T, n, *noise)."""
        self.actor.refresh()
        noise = []
        for env_id in self.env_ids:
            generator = np.random.default_rng(
                seed_sequence(self.seed, Stream.ACTION, env_id, iteration)
            )
            noise.append(self.actor.draw_noise(generator, self.num_steps))
        self.noise = np.stack(noise, axis=1)

    def __call__(self, t: int, columns: slice = slice(None)) -> None:
        """Write the actions of row t, its features and the recurrent states of row t + 1."""
        rollout = self.rollout
        states = rollout.states[t + 1, columns]
        states[:] = rollout.states[t, columns]
        rollout.actions[t, columns] = self.actor(
            self.normalize(rollout.observations[t, columns]),
            self.noise[t, columns],
            mask=rollout.action_masks[t, columns],
            states=states,
            features=rollout.features[t, columns],
        )
