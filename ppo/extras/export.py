"""ppo export: write a policy as an ONNX file, which acts without this trainer, torch or Python."""

import json
import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy import ndarray
from torch import Tensor, nn

from ppo.checkpoint import write
from ppo.envs.normalize import CLIP
from ppo.envs.observations import NUMBERS
from ppo.envs.spaces import ACTION_MASK, box_scale, num_choices, to_json
from ppo.errors import ConfigError, PPOError, reason
from ppo.models import MakeTorchActor
from ppo.models.numpy_mlp import EMPTY
from ppo.policy import Policy, load_policy

STATE = "state"
TOLERANCE = 1e-5  # a large CNN rounds by 1e-6
NUM_ROWS = 256  # that a file is compared on
Tables = dict[str, ndarray]


@dataclass(frozen=True)
class Flags:
    output: str = "policy.onnx"
    """File to write; it must not exist."""


def main(words: list[str], options: Flags, flags: dict[str, Any]) -> None:
    """Export a run or a policy file. flags: of the environment, in place of the run's."""
    if len(words) not in (1, 2):
        raise ConfigError("export needs a run or a policy file: ppo export runs/NAME")
    output = words[1] if len(words) == 2 else options.output
    path = Path(output)
    if path.suffix != ".onnx" or path.exists():
        raise ConfigError(f"--output={path}: give a new file that ends in .onnx")
    flags["precision"] = "float32"
    policy = load_policy(words[0], **flags)
    difference = export(policy, path)
    print(f"{path}: its actions differ from the policy's by at most {difference:.1g}")


def export(policy: Policy, path: Path) -> float:
    """Write a policy of precision float32 to a file; return compare()'s result. Raises ConfigError
    if it cannot be exported, PPOError if its actions differ too much."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401, torch's own message about its absence is long
    except ImportError as error:
        raise ConfigError("export needs packages: pip install onnxscript onnxruntime") from error
    content = to_onnx(policy)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    difference = compare(policy, session)
    if not difference <= TOLERANCE:
        raise PPOError(
            f"{path} was not written: its actions differ from the policy's by {difference:.1g}"
        )
    try:
        write(path, content)
    except OSError as error:
        raise ConfigError(f"--output={path} cannot be written ({reason(error)})") from error
    return difference


class ExportedPolicy(nn.Module):
    """A policy's most likely actions, as the environment takes them, for rows (n, ...) of tables of
    ppo.envs.observations.Layout, action masks (n, M) and recurrent states (n, S), by name."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.layout = policy.spaces.layout
        self.space = policy.spaces.actions
        self.normalize = policy.normalize
        make_actor = MakeTorchActor(policy.spaces)
        self.model: Any = make_actor(policy.weights).model

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        tables = {name: inputs[name] for name in self.layout.tables}
        if self.layout.has_numbers:
            tables[NUMBERS] = self._normalized(tables[NUMBERS])
        observations = self.layout.named(tables)
        state = inputs.get(STATE)
        distribution, _, next_state = self.model.act(observations, state)
        if ACTION_MASK in inputs:
            distribution = distribution.masked(inputs[ACTION_MASK])
        action = self._converted(distribution.mode())
        if state is None:
            return (action,)
        return action, next_state

    def _normalized(self, numbers: Tensor) -> Tensor:
        normalize = self.normalize
        if normalize.enabled:
            shift = torch.from_numpy(normalize.shift)
            dtype = torch.promote_types(numbers.dtype, shift.dtype)
            centered = numbers.to(dtype) - shift
            scaled = centered.float() * torch.from_numpy(normalize.scale)
            numbers = scaled.clamp(-CLIP, CLIP)
        is_double = numbers.dtype == torch.float64
        return numbers.float() if is_double else numbers

    def _converted(self, actions: Tensor) -> Tensor:
        """Return the environment's actions: see ppo.envs.spaces.action_converter."""
        space = self.space
        dtype = getattr(torch, str(space.dtype))
        rows = actions.reshape(-1, *space.shape)
        if not isinstance(space, Box):
            start = getattr(space, "start", 0)
            shifted = rows + torch.as_tensor(start)
            return shifted.to(dtype)
        shift, factor = map(torch.from_numpy, box_scale(space))
        rows = shift + factor * rows
        rows = rows.maximum(torch.from_numpy(space.low))
        rows = rows.minimum(torch.from_numpy(space.high))
        if not dtype.is_floating_point:
            rows = rows.round()
        return rows.to(dtype)


def to_onnx(policy: Policy) -> bytes:
    """Return the content of an ONNX file. Raises ConfigError if torch cannot export the network."""
    inputs = {}
    for name, rows in random_inputs(policy, 2).items():
        inputs[name] = torch.from_numpy(rows)
    outputs = ["action"]
    if STATE in inputs:
        outputs.append(f"next_{STATE}")
    batch = {0: torch.export.Dim("batch")}
    logging.disable()  # torch logs details of its internals
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                ExportedPolicy(policy),
                kwargs={"inputs": inputs},
                dynamo=True,
                verbose=False,
                input_names=[*inputs],
                output_names=outputs,
                dynamic_shapes={"inputs": dict.fromkeys(inputs, batch)},
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise ConfigError(f"the network cannot be exported ({reason(error)})") from error
    finally:
        logging.disable(logging.NOTSET)
    about = json.dumps(describe(policy))
    about = about.replace("-Infinity", "null").replace("Infinity", "null")  # which JSON lacks
    program.model.metadata_props["ppo"] = about
    return program.model_proto.SerializeToString()


def describe(policy: Policy) -> dict[str, Any]:
    """Return what an environment's observations, images and actions become, as JSON values."""
    layout = policy.spaces.layout
    parts = []
    for part in [*layout.vectors, *layout.images]:
        about = {
            "path": [*part.path],
            "space": to_json(part.space),
            "input": NUMBERS,
            "stack": layout.num_vectors,
        }
        if part.is_image:
            stack = layout.make_stack(part)
            about |= {
                "input": layout.table_of(part),
                "stack": stack.num_images,
                "to_gray": stack.is_made_gray,
                "size": [*stack.size],
                "resize": "cv2.INTER_AREA",
            }
        parts.append(about)
    return {
        "config": policy.state["config"],
        "observations": parts,
        "actions": to_json(policy.spaces.actions),
    }


def random_inputs(policy: Policy, count: int) -> Tables:
    """Draw random inputs of an ExportedPolicy, numbers near those that the policy has seen."""
    random = np.random.default_rng(0)
    layout = policy.spaces.layout
    inputs: Tables = {}
    for name, box in layout.tables.items():
        shape = (count, *box.shape)
        if name == NUMBERS and layout.has_numbers:
            statistics = policy.normalize.statistics
            scale = 2 * np.sqrt(statistics.variance)
            rows = statistics.mean + scale * random.standard_normal(shape)
        else:
            rows = random.uniform(0, 256, shape)
        inside = np.clip(rows, box.low, box.high)
        inputs[name] = inside.astype(box.dtype)
    if policy.spaces.has_masks:
        exists = policy.to_mask(None)
        drawn = random.random((count, exists.size))
        masks = exists & (drawn < 0.5)
        sizes = num_choices(policy.spaces.actions)
        choices = masks.reshape(count, len(sizes), -1)
        choices[..., 0] = True
        inputs[ACTION_MASK] = masks
    if size := policy.actor.state_size:
        states = random.uniform(-1, 1, (count, size))
        inputs[STATE] = states.astype(np.float32)
    return inputs


def compare(policy: Policy, session: Any) -> float:
    """Return the largest difference of a file's actions from the policy's on random observations,
    relative to its largest action beyond 1, also before actions are clipped."""
    inputs = random_inputs(policy, NUM_ROWS)
    names = policy.spaces.layout.tables
    rows = {name: inputs[name] for name in names}
    masks = inputs.get(ACTION_MASK, EMPTY)
    states = np.zeros((NUM_ROWS, 0))
    if STATE in inputs:
        states = inputs[STATE].copy()
    differences = []
    for _ in range(2):  # the second time from the states that the first has led to
        action, *next_states = session.run(None, inputs)
        columns = policy.act(rows, None, masks, states)
        wanted = np.array(policy.to_actions(columns), np.float64)
        largest_column = np.abs(columns).max()
        largest_action = np.abs(wanted).max()
        size = max(1.0, largest_column, largest_action)
        difference = np.abs(action - wanted).max()
        differences.append(difference / size)
        if next_states:
            inputs[STATE] = next_states[0]
    return float(np.max(differences))
