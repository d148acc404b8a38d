"""Export a policy as an ONNX file, which runs without this trainer, PyTorch or Python."""

import logging
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ppo.commands.policy_flags import PolicyCommand
from ppo.config.flags import flag
from ppo.envs.make import preprocess
from ppo.envs.spaces import leaves, scale_of
from ppo.errors import ConfigError, PPOError
from ppo.extras.tools.random_play import play
from ppo.guard import guard
from ppo.models.actor import Actor
from ppo.models.actor_critic import ActorCritic
from ppo.models.observation_parts import is_packed, parts_of, vectors_of
from ppo.policy.factories import new_model
from ppo.policy.policy import Policy
from ppo.run.checkpoint import find_checkpoint
from ppo.system.files import atomic_write, new_file
from ppo.system.imports import extra

STATE = "state"
MAX_DIFFERENCE = 1e-5
NUM_STEPS = 64  # of random play, on which the exported policy is checked


class ExportMismatch(PPOError):
    """An exported policy does not act as the original does."""


class ExportedPolicy(nn.Module):
    """Compute a policy's most likely actions, as a module that torch can export.

    Its input is a dict of the parts (n, *part) of observations that the policy reads, by name, and
    recurrent states (n, S). It returns a tuple: actions (n, ...) in the dtype of each part of the
    action space, and the next states if states were given. model: with the policy's weights; parts:
    the parts of the action space, by name."""

    def __init__(self, policy: Policy, model: ActorCritic) -> None:
        super().__init__()
        self.model = model
        self.parts = {
            ".".join(map(str, ["action", *path])): leaf
            for path, leaf in leaves(policy.spaces.actions)
        }
        self.space = policy.spaces.observations
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
        whole = {}
        for name, box in parts_of(self.space).items():
            part = parts.get(name, given.new_zeros(given.shape[0], *box.shape))
            if name in self.tables:
                shift, scale, highest = self.tables[name]
                part = (part.to(shift.dtype) - shift).float() * scale
                part = part.minimum(highest).maximum(-highest)
            whole[name] = part
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


def export(policy: Policy, path: Path) -> float:
    """Write a policy of precision float32 as a new ONNX file, after comparing the two.

    Returns the largest absolute difference between onnxruntime's actions and the policy's most
    likely ones, on observations of random play. Raises ConfigError if the policy needs action
    masks, a package is missing or the model cannot be exported, ExportMismatch if the difference
    exceeds 1e-5 (of larger bounds to which numbers are scaled, 1e-5 times these), WorkerError if
    the environment raises."""
    if policy.to_mask:
        raise ConfigError(
            "this policy must be told which actions are allowed, which an ONNX file is not: use it "
            "from Python, by ppo.load_policy"
        )
    observations = guard().call("the export", policy.config, _observe, policy)
    model = new_model(policy.config, policy.spaces, to_act=True)
    actor = Actor(model, policy.weights)
    exported = ExportedPolicy(policy, model)
    states = np.zeros((len(observations), actor.state_size), np.float32)
    space = policy.spaces.observations
    inputs = {
        name: observations[:, space.places[name]].view(box.dtype).reshape(-1, *box.shape)
        if hasattr(space, "places")
        else observations
        for name, box in parts_of(space).items()
        if name in policy.parts
    }
    if states.size:
        inputs[STATE] = states
    with extra("export"), atomic_write(path, is_new=True) as temporary:
        _write(exported, inputs, temporary)
        import onnxruntime

        session = onnxruntime.InferenceSession(temporary, providers=["CPUExecutionProvider"])
        found = session.run(None, inputs)
        columns = actor(policy.normalize(observations), None, states=states.copy())
        expected = exported.to_actions(torch.from_numpy(columns))
        differences = [
            np.abs(np.subtract(one, other.numpy(), dtype=np.float64))
            for one, other in zip(found, expected, strict=False)  # found has next states, too
        ]
        difference = float(max(table.max() for table in differences))
        limits = [MAX_DIFFERENCE * size for size in exported.sizes()]
        if not all((x <= y).all() for x, y in zip(differences, limits, strict=True)):
            raise ExportMismatch(
                f"{path} is not written: its actions differ from the policy's by {difference:g}"
            )
    return difference


def _observe(policy: Policy) -> np.ndarray:
    """Return observations (n, *observation) of random play."""
    seed = policy.config.seed
    if policy.spaces.team_size > 1:  # none of which is an environment by itself
        from ppo.extras.tools.check_columns import play_columns
        from ppo.extras.vector.evaluation import columns_for

        record = play_columns(columns_for(policy, [seed]), seed, NUM_STEPS)
    else:
        record = play(policy.make_env(finish=preprocess), seed, NUM_STEPS, close=True)
    return np.stack(record.observations)


def _write(policy: ExportedPolicy, inputs: dict[str, Any], path: Path) -> None:
    """Write an ONNX file. inputs: example arrays of at least two rows, by name.

    Raises ConfigError if torch cannot export the model."""
    import onnxscript  # noqa: F401, torch's own message about its absence is long

    outputs = [*policy.parts]
    parts = {name: torch.from_numpy(table[:2]) for name, table in inputs.items()}
    batch = {0: torch.export.Dim("batch")}
    state = parts.pop(STATE, None)
    arguments: dict[str, Any] = {"parts": parts}
    shapes: dict[str, Any] = {"parts": dict.fromkeys(parts, batch)}
    if state is not None:
        arguments[STATE] = state
        shapes[STATE] = batch
        outputs.append("next_state")
    logging.disable()  # torch logs details of its internals
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                policy,
                (),
                str(path),
                kwargs=arguments,
                dynamo=True,
                external_data=False,
                verbose=False,
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes=shapes,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise ConfigError(f"this model cannot be exported: {str(error).splitlines()[0]}") from error
    finally:
        logging.disable(logging.NOTSET)


class Export(PolicyCommand):
    """Export a policy, with the scaling of observations and bounds of actions, to an ONNX file."""

    output: str = flag("", "New .onnx file.", nargs=None)

    def __call__(self) -> None:
        """Write the file, and print the largest difference between its actions and the policy's.

        Raises ConfigError for unusable flags or files, CheckpointError if the checkpoint cannot be
        used, ExportMismatch if the file's actions differ."""
        path = new_file("", self.output, (".onnx",))
        policy = self.load(find_checkpoint(self.run), precision="float32")
        difference = export(policy, path)
        print(f"{path}: its actions differ from the policy's by {difference:.1g} at most")
