"""Families of environments with their own preprocessing: a class for each, listed in FAMILIES."""

import re
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from ppo.envs.env_kwargs import wrap
from ppo.envs.episodes import RecordEpisode
from ppo.envs.inspection import inspected

if TYPE_CHECKING:
    from ppo.config.config import Config


class Atari:
    """Atari 2600 games that are observed as images. config: the flags of the run."""

    name = "Atari"
    module = "ale_py"  # registers its ids with gymnasium
    fields = ("noop_max", "end_on_life_loss", "sticky_actions", "full_action_space")  # only its own

    def canonical_id(self, env_name: str) -> str:
        """Replace an id whose emulator skips frames by that of the game without frame skipping."""
        return re.sub(r"Deterministic-(v[04])$", r"NoFrameskip-\1", env_name)

    def matches(self, spec: EnvSpec) -> bool:
        """Return whether spec is a plain game observed as images, without unsupported options."""
        return (
            str(spec.entry_point).startswith("ale_py.env")
            and spec.kwargs.get("obs_type") != "ram"
            and not spec.kwargs.get("continuous")
            and not spec.max_episode_steps
            and not spec.additional_wrappers
        )

    def auto_values(self, spec: EnvSpec) -> dict[str, Any]:
        """Return what "auto" means for flags of an environment."""
        return {
            "frame_skip": 4,
            "sticky_actions": spec.kwargs.get("repeat_action_probability", 0.25),  # as ale_py
        }

    def make(self, spec: EnvSpec, config: "Config") -> gymnasium.Env:
        """Make a game with all preprocessing but resizing and stacking, which ObserveParts does.

        The id's own frame skip is turned off. Raises gymnasium.error.Error without a ROM."""
        from ale_py import Action, ALEInterface, LoggerMode

        from ppo.envs.atari import AtariGame, EndOnLifeLoss, FireOnReset

        ALEInterface.setLoggerMode(LoggerMode.Error)  # no banner for each environment
        stickiness = config.sticky_actions
        if stickiness == "auto":
            stickiness = self.auto_values(spec)["sticky_actions"]
        spec.kwargs["repeat_action_probability"] = 0.0  # AtariGame repeats actions itself
        if config.full_action_space:
            spec.kwargs["full_action_space"] = True
        if config.max_episode_steps:
            frames = config.max_episode_steps * config.frame_skip
            spec.kwargs["max_num_frames_per_episode"] = frames
        try:
            emulator = gymnasium.make(spec, disable_env_checker=True, frameskip=1)
        except OSError as error:
            raise gymnasium.error.Error(
                f"its ROM cannot be read ({error}): point ALE_ROMS_DIR to a folder with it, or "
                "pip install --force-reinstall ale_py"
            ) from error
        in_color = config.image == "color"
        frame_skip = int(config.frame_skip)
        game = AtariGame(emulator, frame_skip, config.noop_max, stickiness, in_color)
        env: Any = game
        if config.wrapper:
            env = inspected(config, wrap(game, config.wrapper))
        env = RecordEpisode(env)
        if config.end_on_life_loss:
            env = EndOnLifeLoss(env)
        if Action.FIRE in game.ale.getMinimalActionSet():
            env = FireOnReset(env, game.actions.index(Action.FIRE))
        return env


FAMILIES = (Atari(),)
