"""Fine-tuning: start a run with the weights and statistics of another one."""

from ppo.components import Components
from ppo.errors import ConfigError
from ppo.extras.transfer.flags import PARTS, FineTuningFlags
from ppo.run.checkpoint import copy_state, describe_mismatch, find_checkpoint, load
from ppo.run.trusted_settings import check_scale
from ppo.system.state_dict import State


def initialize(parts: Components) -> str:
    """Load the --init_parts of --init_from into a new run; return a note for the user.

    Nothing that the checkpoint names is imported. Raises
    ConfigError if there is no such checkpoint, or if it does not fit and --init_partial is not
    given, CheckpointError if it is damaged.
    """
    config, flags = parts.config, FineTuningFlags.of(parts.config)
    state = parts.peers.call_in_first(lambda: load(find_checkpoint(str(flags.init_from))))
    wanted = select_parts(flags.init_parts, parts.learning_state())
    found = select_parts(flags.init_parts, state)
    fitting = {
        name: found[name]
        for name, value in wanted.items()
        if not describe_mismatch({name: found.get(name)}, {name: value})
    }
    if problems := describe_mismatch(found, wanted):
        if not flags.init_partial:
            raise ConfigError(
                f"--init_from={flags.init_from} does not fit ({problems}): "
                "give --init_partial to take what does"
            )
        # Of a layer all tensors are taken or none: each means nothing without the others.
        layers = {name.rpartition(".")[0] for name in {**found, **wanted}.keys() - fitting.keys()}
        fitting = {
            name: value for name, value in fitting.items() if name.rpartition(".")[0] not in layers
        }
        problems = f", without {', '.join(sorted({**found, **wanted}.keys() - fitting.keys()))}"
    if "policy" in flags.init_parts.split(","):
        saved = state["config"] if isinstance(state.get("config"), dict) else {}
        check_scale(f"--init_from={flags.init_from}", saved, config, parts.spaces)
    parts.load_state_dict(copy_state({**parts.state_dict(), **fitting}))
    return f"begins with {flags.init_parts} of {flags.init_from}{problems}"


def select_parts(init_parts: str, state: State) -> State:
    """Return the entries of a state that --init_parts names.

    policy and value together select the whole model, shared layers included.
    """
    parts = init_parts.split(",")
    prefixes = tuple(PARTS[part] for part in parts)
    if "policy" in parts and "value" in parts:
        prefixes += ("model.",)
    return {name: value for name, value in state.items() if name.startswith(prefixes)}
