"""Values of flags for environments and their families, tuned or published, from JSON files."""

from ppo.extensions import Extension

EXTENSION = Extension(
    flags=("ppo.extras.presets.flags:PresetFlags",),
    defaults="ppo.extras.presets.presets:defaults",
    auto="ppo.extras.presets.presets:what_auto_means",
)
