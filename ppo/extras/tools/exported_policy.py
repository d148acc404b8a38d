"""What is exported: a policy as a module for torch, its inputs, and what a file says of itself."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, MultiBinary, unflatten
from torch import Tensor, nn

from ppo.envs.observations import ONE_HOT, PIXELS, ShownPart, shown_of
from ppo.envs.spaces import choices_of, leaves, scale_of
from ppo.models.actor_critic import ActorCritic
from ppo.models.observation_parts import images_of, is_packed, parts_of, vectors_of
from ppo.policy.policy import Policy


class ExportedPolicy(nn.Module):
    """Compute a policy's most likely actions, as a module that torch can export.

    Its input is a dict of the parts of observations that the policy reads, by name, and recurrent
    states (n, S). A part is (n, *part) as the environment shows it; where vectors are stacked,
    (n, m, *part), the last m; of images, the stack (n, size, size, channels) of the last ones,
    resized. It returns a tuple: actions (n, ...) in the dtype of each part of the action space, and
    the next states if states were given. model: with the policy's weights; parts: the parts of the
    action space, by name."""

    def __init__(self, policy: Policy, model: ActorCritic) -> None:
        super().__init__()
        self.model = model
        self.parts = {
            ".".join(map(str, ["action", *path])): leaf
            for path, leaf in leaves(policy.spaces.actions)
        }
        self.space: Any = policy.spaces.observations
        self.layer: Any = getattr(self.space, "layer", self.space)
        self.squash = policy.config.squash_actions
        self.scale = policy.config.scale_actions
        self.tables = {}  # to normalise each vector
        if policy.normalize.enabled:
            normalize = policy.normalize
            rest = [normalize.shift, normalize.scale, normalize.highest]
            for name, box in vectors_of(self.space).items():
                tables = [torch.tensor(table.ravel()[: box.low.size]) for table in rest]
                self.tables[name] = [table.view(box.shape) for table in tables]
                rest = [table.ravel()[box.low.size :] for table in rest]

    def forward(self, parts: dict[str, Tensor], state: Tensor | None = None) -> tuple[Tensor, ...]:
        inputs: tuple[Any, Any] = (self.observe(parts), state)
        distribution, _, next_state = self.model.act(*inputs)
        actions = self.to_actions(distribution.mode())
        if state is not None:
            actions.append(next_state)
        return tuple(actions)

    def observe(self, parts: dict[str, Tensor]) -> Tensor | dict[str, Tensor]:
        """Return observations (n, *observation) made of the given parts, normalised.

        Missing parts are zeros. Observations that training packs as bytes stay a dict of parts."""
        given = next(iter(parts.values()))
        found = {
            name: encode(part, parts[name])
            if name in parts
            else torch.zeros(given.shape[0], *parts_of(self.layer)[name].shape)
            for name, part in shown_of(self.layer).items()
        }
        if self.layer is not self.space:
            dtype = getattr(torch, str(self.space.dtype))
            joined = torch.cat([part.flatten(2).to(dtype) for part in found.values()], 2)
            found = {"observation": joined.flatten(1)}
        whole = {}
        for name, box in parts_of(self.space).items():
            part = found[name].reshape(-1, *box.shape)
            if name in self.tables:
                shift, scale, highest = self.tables[name]
                part = (part.to(shift.dtype) - shift).float() * scale
                part = part.minimum(highest).maximum(-highest)
            whole[name] = part if name in images_of(self.space) else part.float()
        return whole if is_packed(self.space) else torch.cat([*whole.values()], 1)

    def sizes(self) -> list[Any]:
        """Return the size of numbers that counts as 1 in each part of the action space: that of the
        bounds to which they are scaled, if these are larger."""
        scales = []
        for space in self.parts.values():
            scaling = hasattr(space, "low") and scale_of(space, self.squash, self.scale)
            shift, factor = scaling or (0, 1)
            scales.append(np.maximum(1, np.abs(shift) + factor))
        return scales

    def to_actions(self, columns: Tensor) -> list[Tensor]:
        """Convert columns (n, D) to the environment's actions, a tensor per part of its space."""
        widths = [math.prod(space.shape) for space in self.parts.values()]
        columns_of_parts = torch.split(columns, widths, 1)
        actions = []
        for part, space in zip(columns_of_parts, self.parts.values(), strict=True):
            rows = part.reshape(-1, *space.shape)
            dtype = getattr(torch, str(space.dtype))
            if hasattr(space, "low"):
                low = torch.from_numpy(space.low).float()
                high = torch.from_numpy(space.high).float()
                if self.squash:
                    rows = rows.tanh()
                if scaling := scale_of(space, self.squash, self.scale):
                    shift, factor = (torch.as_tensor(table).float() for table in scaling)
                    rows = shift + factor * rows
                rows = rows.maximum(low).minimum(high)
                if not dtype.is_floating_point:
                    rows = rows.round()
            else:
                rows = rows + torch.as_tensor(getattr(space, "start", 0))
            actions.append(rows.to(dtype))
        return actions


def encode(part: ShownPart, shown: Tensor) -> Tensor:
    """Return what the environment shows of a part, (n, *part) or (n, m, *part), as vectors in which
    choices are one-hot: (n, k) or (n, m, k). Stacks of images stay as they are."""
    leaf = part.space
    if part.kind in PIXELS:
        return shown
    numbers = shown.flatten(-len(leaf.shape)) if leaf.shape else shown.unsqueeze(-1)
    if part.kind == "categories":
        sizes, starts = np.full(leaf.low.size, len(ONE_HOT)), np.zeros(leaf.low.size, np.int64)
        numbers = numbers.clamp(max=len(ONE_HOT) - 1)
    elif isinstance(leaf, (Box, MultiBinary)):
        return numbers
    else:
        sizes, starts = choices_of(leaf), np.ravel(leaf.start)
    columns = np.repeat(np.arange(len(sizes)), sizes)
    choices = np.concatenate(
        [start + np.arange(size) for size, start in zip(sizes, starts, strict=True)]
    )
    return numbers[..., torch.from_numpy(columns)].long() == torch.from_numpy(choices)


def decode(part: ShownPart, vector: np.ndarray) -> np.ndarray:
    """Return what encode makes a vector (k,) of, in a dtype that ONNX has operators for."""
    leaf = part.space
    if part.kind == "categories":
        shown: Any = vector.reshape(*leaf.shape, len(ONE_HOT)).argmax(-1)
    else:
        shown = unflatten(leaf, vector)
    is_wide = leaf.dtype.kind == "u" and leaf.dtype.itemsize > 1
    return np.asarray(shown, np.int64 if is_wide else leaf.dtype)


def shown_in(space: Any, observations: np.ndarray, needed: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the inputs of an ExportedPolicy, by name, of which preprocessed observations
    (n, *observation) are made."""
    layer: Any = getattr(space, "layer", space)
    inputs = {}
    for name, part in shown_of(layer).items():
        if layer is space and name not in needed:
            continue
        box = parts_of(layer)[name]
        rows = observations.reshape(len(observations), -1, math.prod(layer.shape))
        if hasattr(layer, "places"):
            rows = np.ascontiguousarray(rows[..., layer.places[name]]).view(box.dtype)
        if part.kind in PIXELS:
            inputs[name] = rows.reshape(-1, *box.shape)
            continue
        table = np.stack([decode(part, row) for row in rows.reshape(-1, rows.shape[-1])])
        lead = rows.shape[:1] if layer is space else rows.shape[:2]
        inputs[name] = table.reshape(*lead, *part.space.shape)
    return inputs


def describe(
    policy: Policy, exported: ExportedPolicy, inputs: Mapping[str, np.ndarray]
) -> dict[str, str]:
    """Return what an exported file says of itself: the environment, the version of the trainer, and
    as JSON its inputs and its outputs with their bounds, by name."""
    layer = exported.layer
    about: dict[str, Any] = {}
    for name, part in shown_of(layer).items():
        if name not in inputs:
            continue
        about[name] = {"shown": describe_space(part.space), "dtype": str(inputs[name].dtype)}
        if part.kind in PIXELS:
            reader: Any = part.read
            depth = parts_of(layer)[name].shape[-1]
            channels = reader(np.zeros(part.space.shape, np.uint8)).shape[-1]
            about[name]["preprocessing"] = (
                f"{reader.rule}; the last {depth // channels}, the oldest first, in the last "
                "dimension; at the beginning of an episode all are the first"
            )
        elif layer is not exported.space:
            about[name]["stacked"] = inputs[name].shape[1]
    actions = {name: describe_space(leaf) for name, leaf in exported.parts.items()}
    found = {
        "environment": policy.config.env_name,
        "env_kwargs": json.dumps(policy.config.env_kwargs),
        "wrappers": " ".join(policy.spaces.wrappers),
        "inputs": json.dumps(about),
        "outputs": json.dumps(actions),
    }
    with suppress(PackageNotFoundError):
        found["version"] = f"ppo-trainer {version('ppo-trainer')}"
    return found


def describe_space(leaf: Any) -> dict[str, Any]:
    """Return a leaf as JSON values, in which null stands for no bound."""
    about: dict[str, Any] = {"space": type(leaf).__name__, "shape": [*leaf.shape]}
    if isinstance(leaf, Box):
        for name, bounds in (("low", leaf.low), ("high", leaf.high)):
            finite: Any = bounds.astype(object)
            finite[~np.isfinite(bounds)] = None
            is_one = (bounds == bounds.flat[0]).all()
            about[name] = finite.flat[0] if is_one else finite.tolist()
    else:
        about["choices"] = choices_of(leaf).reshape(leaf.shape).tolist()
        about["start"] = np.asarray(getattr(leaf, "start", 0)).tolist()
    return about
