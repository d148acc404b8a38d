"""What a run has of other runs: weights to begin with, weights that stand still, a teacher."""

from ppo.algorithm.flat_weights import mask_of
from ppo.components import Components
from ppo.errors import ConfigError
from ppo.extras.transfer.flags import FineTuningFlags, TeacherFlags
from ppo.parts import Part


def prepare(parts: Components) -> list[str]:
    """Begin with --init_from, if it is given; return notes for the user. Raises as initialize."""
    if not FineTuningFlags.of(parts.config).init_from:
        return []
    from ppo.extras.transfer.fine_tune import initialize

    return [initialize(parts)]


def make_parts(parts: Components) -> dict[str, Part]:
    """Return the parts that flags ask for, by name, and freeze the weights that --freeze names.
    Raises ConfigError for an unknown one, and as load_teacher."""
    learner = parts.learner
    flags = FineTuningFlags.of(parts.config)
    found: dict[str, Part] = {}
    if flags.freeze:
        prefixes = flags.freeze.split(",")
        names = [name for name, _ in parts.model.named_parameters()]
        for prefix in prefixes:
            if not any(name.startswith(prefix) for name in names):
                raise ConfigError(
                    f"--freeze: unknown parameter {prefix}; give some of {', '.join(names)}"
                )
        learner.held = mask_of(parts.model, prefixes)
    if flags.critic_warmup:
        from ppo.extras.transfer.critic_warmup import CriticWarmup

        found["critic_warmup"] = CriticWarmup(parts, flags.critic_warmup)
    if TeacherFlags.of(parts.config).teacher:
        from ppo.extras.transfer.teacher import Distillation, load_teacher

        teacher = load_teacher(parts.config, parts.spaces, parts.model, parts.peers)
        found["teacher"] = Distillation(learner, teacher)
    return found
