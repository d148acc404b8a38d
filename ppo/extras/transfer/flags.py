"""Flags of learning from other runs."""

from ppo.config.flags import Flags, ImportPath, fixed_flag, flag, live_flag
from ppo.config.learning_flags import LINEAR, Scheduled

# What --init_parts can take from another run: the prefix of the names in its checkpoint.
PARTS = {
    "policy": "model.policy_",
    "value": "model.value_",
    "normalizer": "normalize_observation.",
}
PART = "|".join(PARTS)


class FineTuningFlags(Flags):
    """Fine-tuning."""

    init_from: str | None = fixed_flag(
        None, "Run or checkpoint whose weights a new run starts with; none: random weights."
    )
    init_parts: str = fixed_flag(
        ",".join(PARTS),
        "Parts to load from --init_from; the normalizer is that of observations, reward statistics "
        "always start anew.",
        pattern=f"({PART})(,({PART}))*",
        form=f"some of {','.join(PARTS)}",
    )
    init_partial: bool = fixed_flag(
        False, "Load only tensors of --init_from whose shape fits, instead of refusing the others."
    )
    freeze: str | None = flag(
        None,
        "Comma-separated prefixes of the names of parameters that are not trained.",
        pattern=r"[\w.]+(,[\w.]+)*",
        form="names like policy_trunk,value_trunk",
    )
    critic_warmup: int = fixed_flag(
        0,
        "Iterations at the start in which only the value network is trained; the policy and loaded "
        "observation statistics do not change.",
        low=0,
    )


class TeacherFlags(Flags):
    """Teacher (policy distillation)."""

    teacher: str | None = flag(
        None,
        "Run or checkpoint of a policy that the new policy learns to imitate in the states that it "
        "visits itself; none: no teacher.",
    )
    teacher_coef: float | Scheduled = live_flag(
        "linear:1",
        "Coefficient of the KL divergence of the policy from the teacher in the loss; linear: "
        "decays to 0 over the run.",
        low=0,
        schedules=LINEAR,
    )
    distill: bool = flag(
        False,
        "Learn the policy from the teacher alone, without policy loss and entropy bonus.",
        needs="teacher",
    )
    teacher_parts: str | None = flag(
        None,
        "Comma-separated keys of a Dict observation that the teacher reads; none: all.",
        needs="teacher",
    )
    teacher_model: ImportPath | None = flag(
        None,
        "Import path of the teacher's network if it is a class of your own; none: a built-in one.",
        imports=True,
        needs="teacher",
    )
