"""Export a policy as an ONNX file, which runs without this trainer, PyTorch or Python."""

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ppo.commands.policy_flags import PolicyFlags
from ppo.config.flags import flag
from ppo.envs.env_kwargs import describe_wrappers
from ppo.envs.make import preprocess
from ppo.errors import ConfigError, PPOError
from ppo.extras.tools.exported_policy import ExportedPolicy, describe, shown_in
from ppo.extras.tools.random_play import play
from ppo.guard import guard
from ppo.models.actor import Actor
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
    inputs = shown_in(policy.spaces.observations, observations, policy.parts)
    about = describe(policy, exported, inputs)
    if states.size:
        inputs[STATE] = states
    with extra("export"), atomic_write(path, is_new=True) as temporary:
        _write(exported, inputs, about, temporary)
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


def _write(
    policy: ExportedPolicy, inputs: dict[str, Any], about: Mapping[str, str], path: Path
) -> None:
    """Write an ONNX file. inputs: example arrays of at least two rows, by name; about: metadata.

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
            program: Any = torch.onnx.export(
                policy,
                (),
                kwargs=arguments,
                dynamo=True,
                verbose=False,
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes=shapes,
            )
            program.model.metadata_props.update(about)
            program.save(str(path), external_data=False)
    except torch.onnx.errors.OnnxExporterError as error:
        raise ConfigError(f"this model cannot be exported: {str(error).splitlines()[0]}") from error
    finally:
        logging.disable(logging.NOTSET)


class Export(PolicyFlags):
    """Export a policy, with the scaling of observations and bounds of actions, to an ONNX file."""

    run: str = flag("", "Folder of a run, its name in runs/, or a checkpoint's file.", nargs=None)
    output: str = flag("", "New .onnx file.", nargs=None)

    def __call__(self) -> None:
        """Write the file, and print the largest difference between its actions and the policy's.

        Raises ConfigError for unusable flags or files, CheckpointError if the checkpoint cannot be
        used, ExportMismatch if the file's actions differ."""
        path = new_file("", self.output, (".onnx",))
        policy = self.load(find_checkpoint(self.run), precision="float32")
        difference = export(policy, path)
        print(f"{path}: its actions differ from the policy's by {difference:.1g} at most")
        if policy.spaces.wrappers:
            print(f"note: {describe_wrappers(policy.spaces.wrappers)}")
