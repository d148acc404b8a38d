"""Learn from other runs: their weights, frozen or not, a critic that warms up, a teacher."""

from ppo.extensions import Extension

EXTENSION = Extension(
    flags=("ppo.extras.transfer.flags:FineTuningFlags", "ppo.extras.transfer.flags:TeacherFlags"),
    prepare="ppo.extras.transfer.run:prepare",
    parts="ppo.extras.transfer.run:make_parts",
)
