"""A policy as an ONNX file, which runs without this trainer, without PyTorch and without Python."""

import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ppo.errors import ConfigError, NotExported
from ppo.run.folder import atomic_write

OBSERVATION, ACTION, STATE, NEXT_STATE = "observation", "action", "state", "next_state"
LARGEST_DIFFERENCE = 1e-5
NUM_CHECKED = 64
Arrays = dict[str, np.ndarray]
Converter = Callable[[Tensor], list[Tensor]]


class ExportedPolicy(nn.Module):
    """From observations (n, *observation) as Policy.make_env shows them, and states (n, S) if it has some, to the
    likeliest actions as that takes them: one tensor (n, ...) for each part of the action space, then next states.
    normalize: shift, scale, lowest and highest of what is computed with, or nothing; to_actions: from columns (n, D) to
    those parts."""

    def __init__(
        self,
        model: Any,
        normalize: tuple[np.ndarray, ...],
        to_actions: Callable[[Tensor], list[Tensor]],
    ) -> None:
        super().__init__()
        self.model, self.to_actions = model, to_actions
        self.normalize = [torch.tensor(table) for table in normalize]

    def forward(self, observation: Tensor, state: Tensor | None = None) -> tuple[Tensor, ...]:
        if self.normalize:
            shift, scale, lowest, highest = self.normalize
            observation = ((observation.float() - shift) * scale).minimum(highest).maximum(lowest)
        distribution, _, next_state = self.model.act(observation, state)
        return (*self.to_actions(distribution.mode()), *([] if state is None else [next_state]))


def columns_to_actions(space: Any, squash: bool) -> tuple[list[str], Converter]:
    """The names of an action space's parts, and what makes those of a policy's columns, as
    ppo.envs.spaces.action_converter does."""
    leaves = dict(_leaves(space, ACTION))
    widths = [int(np.prod(leaf.shape)) for leaf in leaves.values()]

    def convert(columns: Tensor) -> list[Tensor]:
        parts = zip(columns.split(widths, 1), leaves.values(), strict=True)
        return [_fit(part, leaf, squash) for part, leaf in parts]

    return list(leaves), convert


def _leaves(space: Any, name: str) -> Any:
    """The spaces that a space is made of, with their names."""
    parts = getattr(space, "spaces", None)
    if parts is None:
        yield name, space
    else:
        for key, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts):
            yield from _leaves(part, f"{name}.{key}")


def _fit(part: Tensor, space: Any, squash: bool) -> Tensor:
    rows, dtype = part.reshape(-1, *space.shape), getattr(torch, str(space.dtype))
    if hasattr(space, "low"):
        low, high = (torch.from_numpy(bound).float() for bound in (space.low, space.high))
        rows = (low / 2 + high / 2) + (high / 2 - low / 2) * rows.tanh() if squash else rows
        rows = rows.maximum(low).minimum(high)
        rows = rows.round() if not dtype.is_floating_point else rows
    elif np.any(start := getattr(space, "start", 0)):
        rows = rows + torch.as_tensor(start)
    return rows.to(dtype)


def export(policy: Any, path: Path) -> float:
    """Write a policy as ppo.policy.policy has it, in float32. Returns by how much onnxruntime's actions differ at most from
    the policy's own on observations of an episode, which is looked at before the file gets its name. Raises ConfigError
    if something is missing or this is no model to be exported, NotExported if they differ by more than 1e-5."""
    if policy.to_mask:
        problem = "this policy must be told which actions are allowed, which an ONNX file is not"
        raise ConfigError(f"{problem}: use it from Python, by ppo.load_policy")
    env, act = policy.make_env(), policy.make_torch_actor()
    names, convert = columns_to_actions(env.action_space, policy.config.squash_actions)
    normalize = policy.normalize
    tables = (
        (normalize.shift, normalize.scale, normalize.lowest, normalize.highest)
        if normalize.enabled
        else ()
    )
    observations = _observe(env, policy.config.seed)
    states = np.zeros((len(observations), act.state_size), np.float32)
    inputs = {OBSERVATION: observations, **({STATE: states} if states.size else {})}
    try:
        with atomic_write(path) as temporary:
            _write(ExportedPolicy(act.model, tables, convert), inputs, names, temporary)
            found = _run(temporary, inputs)
            columns = torch.from_numpy(act(normalize(observations), None, states=states.copy()))
            wanted = dict(zip(names, convert(columns), strict=True))
            difference = max(
                float(np.abs(found[name] - wanted[name].numpy()).max()) for name in names
            )
            if not difference <= LARGEST_DIFFERENCE:
                raise NotExported(
                    f"{path} is not written: its actions differ from the policy's by {difference:g}"
                )
    except ImportError as error:
        raise ConfigError(f"export needs {error.name}: pip install -e '.[export]'") from error
    finally:
        env.close()
    return difference


def _observe(env: Any, seed: int) -> np.ndarray:
    """Observations (n, *observation) of random actions."""
    env.action_space.seed(seed)
    observations = [np.array(env.reset(seed=seed)[0])]
    for _ in range(NUM_CHECKED - 1):
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        observations.append(np.array(env.reset()[0] if terminated or truncated else observation))
    return np.stack(observations)


def _write(policy: ExportedPolicy, inputs: Arrays, actions: list[str], path: Path) -> None:
    import onnxscript  # noqa: F401, without which torch's message is long

    examples = tuple(torch.from_numpy(table[:2]) for table in inputs.values())
    options: dict[str, Any] = {
        "input_names": list(inputs),
        "output_names": [*actions, *([NEXT_STATE] if STATE in inputs else [])],
        "dynamic_shapes": [{0: torch.export.Dim("batch")} for _ in inputs],
    }
    logging.disable()  # of what torch says about its own inside
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                policy,
                examples,
                str(path),
                dynamo=True,
                external_data=False,
                verbose=False,
                **options,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise ConfigError(f"this model cannot be exported: {str(error).splitlines()[0]}") from error
    finally:
        logging.disable(logging.NOTSET)


def _run(path: Path, inputs: Arrays) -> Arrays:
    """What a file makes of inputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))
