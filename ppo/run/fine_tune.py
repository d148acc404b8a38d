"""Fine-tuning: begin a run with what another one has learned."""

from typing import Any

from ppo.config.learning_flags import PARTS
from ppo.errors import ConfigError
from ppo.run.checkpoint import find_checkpoint, load, misfits
from ppo.system.state_dict import State, select_prefix


def initialize(parts: Any) -> str:
    """Give a new run the --init_parts of --init_from; return a note on them for the user.

    parts: ppo.components.Components. The file is data: nothing that it names is imported. Raises
    ConfigError if there is no such checkpoint or it does not fit, CheckpointError if it is damaged.
    """
    config = parts.config
    path = config.init_from
    state = parts.ranks.broadcast_from_rank0(lambda: load(find_checkpoint(path)))
    wanted = select_parts(config.init_parts, parts.learning_state())
    found = select_parts(config.init_parts, state)
    fitting = {
        name: found[name]
        for name, value in wanted.items()
        if not misfits({name: found.get(name)}, {name: value})
    }
    if problems := misfits(found, wanted):
        if not (config.init_partial and fitting):
            raise ConfigError(
                f"--init_from={path} does not fit ({problems}): "
                "give --init_partial to take what does"
            )
        problems = f", without {', '.join(sorted(wanted.keys() - fitting.keys()))}"
    parts.learner.load_state_dict({**parts.learner.state_dict(), **fitting})
    if "normalize_observation.mean" in fitting:  # else it does not fit, or is not asked for
        arrays = {name: x.numpy() for name, x in fitting.items()}
        parts.normalize_observation.load_state_dict(select_prefix("normalize_observation", arrays))
    parts.publish_weights()
    return f"begins with {config.init_parts} of {path}{problems}"


def select_parts(init_parts: str, state: State) -> State:
    """Return what --init_parts names of a state. Policy and value together are the whole model.

    Raises ConfigError for one of them if the model has parameters of neither.
    """
    prefixes = tuple(PARTS[part] for part in init_parts.split(","))
    networks = {PARTS["policy"], PARTS["value"]}
    if networks <= {*prefixes}:
        prefixes += ("model.",)
    elif networks & {*prefixes}:
        for name in state:
            if name.startswith("model.") and not name.startswith(tuple(networks)):
                raise ConfigError(
                    f"--init_parts={init_parts}: {name} is of neither, give policy,value"
                )
    return {name: value for name, value in state.items() if name.startswith(prefixes)}
