"""Export a policy as an ONNX file, which runs without this trainer, PyTorch and Python."""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ppo.errors import ConfigError, NotExported
from ppo.policy.policy import Policy
from ppo.system.files import atomic_write

OBSERVATION = "observation"
ACTION = "action"
STATE = "state"
NEXT_STATE = "next_state"
LARGEST_DIFFERENCE = 1e-5
NUM_CHECKED = 64  # observations
Arrays = dict[str, np.ndarray]
Converter = Callable[[Tensor], list[Tensor]]


class ExportedPolicy(nn.Module):
    """Compute the most likely actions for observations (n, *observation) of Policy.make_env().

    Returns a tensor (n, ...) for each part of the action space, as that takes it, and, for states
    (n, S), the next states. normalize: shift, scale, lowest and highest of
    ppo.envs.normalize.NormalizeObservation, or (); to_actions: from columns (n, D) to the parts."""

    def __init__(self, model: Any, normalize: Sequence[np.ndarray], to_actions: Converter) -> None:
        super().__init__()
        self.model = model
        self.to_actions = to_actions
        self.normalize = [torch.tensor(table) for table in normalize]

    def forward(self, observation: Tensor, state: Tensor | None = None) -> tuple[Tensor, ...]:
        if self.normalize:
            shift, scale, lowest, highest = self.normalize
            observation = ((observation.float() - shift) * scale).minimum(highest).maximum(lowest)
        distribution, _, next_state = self.model.act(observation, state)
        actions = self.to_actions(distribution.mode())
        if state is not None:
            actions.append(next_state)
        return tuple(actions)


def columns_to_actions(space: Any, squash: bool) -> tuple[list[str], Converter]:
    """Return the names of an action space's parts, and the function from a policy's columns (n, D)
    to them: ppo.envs.spaces.action_converter in torch."""
    leaves = dict(_leaves(space, ACTION))
    widths = [int(np.prod(leaf.shape)) for leaf in leaves.values()]

    def convert(columns: Tensor) -> list[Tensor]:
        parts = zip(torch.split(columns, widths, 1), leaves.values(), strict=True)
        return [_fit(part, leaf, squash) for part, leaf in parts]

    return list(leaves), convert


def _leaves(space: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and spaces that a space is made of."""
    parts = getattr(space, "spaces", None)
    if parts is None:
        yield name, space
        return
    for key, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts):
        yield from _leaves(part, f"{name}.{key}")


def _fit(part: Tensor, space: Any, squash: bool) -> Tensor:
    """Bound, round or shift columns (n, d) to actions (n, ...) of one space."""
    rows = part.reshape(-1, *space.shape)
    dtype = getattr(torch, str(space.dtype))
    if hasattr(space, "low"):
        low = torch.from_numpy(space.low).float()
        high = torch.from_numpy(space.high).float()
        if squash:
            rows = (low / 2 + high / 2) + (high / 2 - low / 2) * rows.tanh()
        rows = rows.maximum(low).minimum(high)
        if not dtype.is_floating_point:
            rows = rows.round()
    elif np.any(getattr(space, "start", 0)):
        rows = rows + torch.as_tensor(space.start)
    return rows.to(dtype)


def export(policy: Policy, path: Path) -> float:
    """Write a policy of precision float32 as an ONNX file, checked against it before it is named.

    Returns the largest difference between onnxruntime's actions and the policy's, on observations
    of random play. Raises ConfigError if a package is missing or the model cannot be exported,
    NotExported if the difference exceeds 1e-5."""
    if policy.to_mask:
        problem = "this policy must be told which actions are allowed, which an ONNX file is not"
        raise ConfigError(f"{problem}: use it from Python, by ppo.load_policy")
    env = policy.make_env()
    try:
        names, convert = columns_to_actions(env.action_space, policy.config.squash_actions)
        observations = _observe(env, policy.config.seed)
    finally:
        env.close()
    actor = policy.make_torch_actor()
    states = np.zeros((len(observations), actor.state_size), np.float32)
    inputs = {OBSERVATION: observations}
    if states.size:
        inputs[STATE] = states
    normalize = policy.normalize
    tables: tuple[np.ndarray, ...] = ()
    if normalize.enabled:
        tables = (normalize.shift, normalize.scale, normalize.lowest, normalize.highest)
    try:
        with atomic_write(path) as temporary:
            _write(ExportedPolicy(actor.model, tables, convert), inputs, names, temporary)
            found = _run(temporary, inputs)
            columns = torch.from_numpy(actor(normalize(observations), None, states=states.copy()))
            difference = max(
                float(np.abs(found[name] - expected.numpy()).max())
                for name, expected in zip(names, convert(columns), strict=True)
            )
            if not difference <= LARGEST_DIFFERENCE:
                problem = f"its actions differ from the policy's by {difference:g}"
                raise NotExported(f"{path} is not written: {problem}")
    except ImportError as error:
        raise ConfigError(f"export needs {error.name}: pip install -e '.[export]'") from error
    return difference


def _observe(env: Any, seed: int) -> np.ndarray:
    """Return observations (NUM_CHECKED, *observation) of random actions."""
    env.action_space.seed(seed)
    observations = [np.array(env.reset(seed=seed)[0])]
    while len(observations) < NUM_CHECKED:
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            observation, _ = env.reset()
        observations.append(np.array(observation))
    return np.stack(observations)


def _write(policy: ExportedPolicy, inputs: Arrays, actions: list[str], path: Path) -> None:
    """Write an ONNX file. Raises ConfigError if torch cannot export the model."""
    import onnxscript  # noqa: F401, torch's own message about its absence is long

    outputs = [*actions, NEXT_STATE] if STATE in inputs else actions
    logging.disable()  # torch reports on its internals
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                policy,
                tuple(torch.from_numpy(table[:2]) for table in inputs.values()),
                str(path),
                dynamo=True,
                external_data=False,
                verbose=False,
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes=[{0: torch.export.Dim("batch")} for _ in inputs],
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise ConfigError(f"this model cannot be exported: {str(error).splitlines()[0]}") from error
    finally:
        logging.disable(logging.NOTSET)


def _run(path: Path, inputs: Arrays) -> Arrays:
    """Return the outputs of an ONNX file by name."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))
