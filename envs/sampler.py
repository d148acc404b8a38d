"""RolloutSampler in environments, wherever that is done."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ppo.envs.seeding import Stream, seed_sequence

ALL = slice(None)


class RolloutSampler:
    """Acts in some environments of a run. act: a ppo.models.actor.Actor, by the weights as they are when a rollout begins;
    normalize: from observations to what that reads; seed: the run's; environments: which they are; rollouts: their
    columns of those that are filled in turn, (T, n)."""

    def __init__(
        self,
        act: Any,
        normalize: Callable[[np.ndarray], np.ndarray],
        seed: int,
        environments: range,
        rollouts: Sequence[Any],
    ) -> None:
        self.act, self.normalize, self.seed, self.environments = act, normalize, seed, environments
        self.rollouts, self.num_steps = rollouts, len(rollouts[0].actions)

    def begin(self, iteration: int) -> None:
        """Get ready for a rollout."""
        self.rollout = self.rollouts[iteration % len(self.rollouts)]
        self.act.refresh()
        # Each environment's randomness is its own, whoever draws it: (T, n, *noise).
        seeds = (
            seed_sequence(self.seed, Stream.ACTION, index, iteration) for index in self.environments
        )
        draws = [self.act.draw_noise(np.random.default_rng(seed), self.num_steps) for seed in seeds]
        self.noise = np.stack(draws, axis=1)

    def __call__(self, t: int, columns: slice = ALL) -> None:
        """Write the actions of row t, in all columns or some, and what is remembered of it."""
        rollout = self.rollout
        rollout.states[t + 1, columns] = rollout.states[t, columns]
        rollout.actions[t, columns] = self.act(
            self.normalize(rollout.observations[t, columns]),
            self.noise[t, columns],
            rollout.action_masks[t, columns],
            states=rollout.states[t + 1, columns],
            features=rollout.features[t, columns],
        )
