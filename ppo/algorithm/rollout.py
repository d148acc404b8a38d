"""The rollout: T steps of N environments, time-major."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Batch = dict[str, Tensor]  # by name, (T * N, ...): a row for each transition


class Rollout(SimpleNamespace):
    """The tensors of a layout, which workers write, as numpy arrays in shared memory. Row t + 1 of observations is what
    action t led to, or the next episode's first one if it ended one. Row T is row 0 of the next rollout, of states and
    masks too."""

    @staticmethod
    def layout(
        num_steps: int, num_envs: int, observation_space: Any, model: Any, has_masks: bool
    ) -> dict[str, tuple]:
        """Shape and dtype of each tensor, by name; what the model or the environment does without has no columns."""
        T, N, head = num_steps, num_envs, model.policy_head
        return {
            "observations": ((T + 1, N, *observation_space.shape), observation_space.dtype),
            "actions": (
                (T, N, head.action_size),
                head.action_dtype,
            ),  # neither squashed nor clipped
            "rewards": ((T, N), np.float32),  # the environment's own
            "terminations": ((T, N), np.bool_),
            "truncations": ((T, N), np.bool_),  # not where both
            "features": (
                (T, N, model.num_shared_features),
                np.float32,
            ),  # of observations, for policy and value
            "states": ((T + 1, N, model.state_size), np.float32),  # that observations are met with
            "action_masks": (
                (T + 1, N, head.mask_size * has_masks),
                np.bool_,
            ),  # what is allowed then
        }


class Minibatch(NamedTuple):
    """Which rows of a batch are in it, and what share they are of all its rows, if there are others elsewhere; of no
    share, there are rows nevertheless."""

    rows: Tensor
    weight: float


def minibatches(
    sizes: tuple[int, int],
    num_epochs: int,
    num_minibatches: int,
    batch_size: int | None,
    length: int,
    seed: int,
    columns: range | None = None,
) -> list[Minibatch]:
    """Each epoch splits the T * N rows of a run anew at random: every row is in one minibatch. There are as many as
    num_minibatches, of sizes as equal as can be; or if a batch_size is given, minibatches of that many rows and a last
    one with the rest. sizes: (T, N); length: rows that belong together, one environment's, stay together and in order;
    1 for each by itself. columns: the environments whose rows are in the batch here, if not all are."""
    T, N = sizes
    columns = range(N) if columns is None else columns
    here = torch.arange(T // length * N).view(-1, N)[:, columns.start : columns.stop].flatten()
    place = torch.full((T // length * N,), -1)
    place[here] = torch.arange(len(here))
    rows = torch.arange(T * len(columns)).view(length, -1)
    generator, found = torch.Generator().manual_seed(seed), []
    for _ in range(num_epochs):
        order = torch.randperm(len(place), generator=generator)
        for part in (
            order.split(max(1, batch_size // length))
            if batch_size
            else order.tensor_split(num_minibatches)
        ):
            own = part if len(columns) == N else place[part][place[part] >= 0]
            found.append(
                Minibatch(rows[:, own if len(own) else slice(1)].flatten(), len(own) / len(part))
            )
    return found
