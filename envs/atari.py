"""Atari 2600 games with the usual preprocessing (Mnih et al. 2015, methods; Machado et al. 2018,
section 5), but for resizing and stacking, which ppo.envs.images does."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from ale_py import Action, ALEInterface, LoggerMode
from gymnasium import Env, Wrapper, spaces
from gymnasium.envs.registration import EnvSpec

from ppo.config import Config
from ppo.envs.episodes import RecordEpisode, Step

FRAME_SKIP = 4
FRAMES_PER_SECOND = 60
MAX_NOOPS = 30


def make_game(
    spec: EnvSpec, config: Config, wrap: Callable[[Env], Env], render_mode: str | None
) -> Env:
    """Make a game. AtariGame skips frames and repeats actions in place of the emulator, with the
    id's probability. wrap: adds the user's wrappers."""
    ALEInterface.setLoggerMode(LoggerMode.Error)  # no banner for each environment
    frame_skip = FRAME_SKIP if config.frame_skip == "auto" else config.frame_skip
    options: dict[str, Any] = {"repeat_action_probability": 0.0, "frameskip": 1}
    if render_mode:
        options["render_mode"] = render_mode
    if config.max_episode_steps:
        options["max_num_frames_per_episode"] = config.max_episode_steps * frame_skip
    emulator = gymnasium.make(spec, disable_env_checker=True, **options)
    stickiness = spec.kwargs.get("repeat_action_probability", 0.25)  # as in ale_py
    game = AtariGame(emulator, frame_skip, stickiness, config.image == "color")
    env: Env = RecordEpisode(wrap(game))
    if config.end_on_life_loss:
        env = EndOnLifeLoss(env)
    if Action.FIRE in game.ale.getMinimalActionSet():
        env = FireOnReset(env, game.actions.index(Action.FIRE))
    return env


class AtariGame(Env):
    """Hold each action for frame_skip frames and sum their rewards. Observations are grayscale
    (H, W), or RGB (H, W, 3) if in_color, uint8: the pixel-wise maximum of the last two frames, as
    many games draw some objects in every other frame only. A game starts with 1 to MAX_NOOPS no-op
    frames. Each later frame repeats the action of the frame before with the probability stickiness;
    the emulator's own sticky actions could not be seeded."""

    def __init__(self, env: Env, frame_skip: int, stickiness: float, in_color: bool) -> None:
        self.env = env
        emulator: Any = env.unwrapped
        self.ale = emulator.ale
        self.spec = env.spec
        self.action_space = env.action_space
        self.render_mode = env.render_mode
        self.metadata = {**env.metadata, "render_fps": FRAMES_PER_SECOND / frame_skip}
        self.frame_skip = frame_skip
        self.stickiness = stickiness
        self.actions = [Action.__members__[name] for name in emulator.get_action_meanings()]
        self.read_screen = self.ale.getScreenRGB if in_color else self.ale.getScreenGrayscale
        self.screen = self.read_screen()
        self.screen_before = self.screen.copy()
        self.observation_space = spaces.Box(0, 255, self.screen.shape, np.uint8)

    def reset(self, *, seed: int | None = None, **options: Any) -> Any:
        super().reset(seed=seed)
        self.held = 0  # the index of the last frame's action: no-op
        self.ale.reset_game()
        for _ in range(self.np_random.integers(1, MAX_NOOPS + 1)):
            self.ale.act(Action.NOOP)
            if self.ale.game_over():
                self.ale.reset_game()
        self.read_screen(self.screen)
        return self.screen.copy(), {"lives": self.ale.lives()}

    def step(self, action: int) -> Step:
        ale = self.ale
        reward = 0.0
        for frame in range(1, self.frame_skip + 1):
            if not self.stickiness or self.np_random.random() >= self.stickiness:
                self.held = int(action)
            reward += ale.act(self.actions[self.held])
            if ale.game_over():
                break
            if frame == self.frame_skip - 1:
                self.read_screen(self.screen_before)
        self.read_screen(self.screen)
        if 1 < frame == self.frame_skip:
            np.maximum(self.screen, self.screen_before, out=self.screen)
        terminated = ale.game_over(with_truncation=False)
        return self.screen.copy(), reward, terminated, ale.game_truncated(), {"lives": ale.lives()}

    def render(self) -> Any:
        return self.env.unwrapped.render()

    def close(self) -> None:
        self.env.close()


class EndOnLifeLoss(Wrapper):
    """End the episode when a life is lost; the reset after that continues the game."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.life_lost = False  # and the game goes on

    def reset(self, **options: Any) -> Any:
        if not self.life_lost:
            self.last = self.env.reset(**options)
        self.lives = self.last[1]["lives"]
        return self.last

    def step(self, action: int) -> Step:
        observation, reward, terminated, truncated, info = self.env.step(action)
        # Some games, such as Qbert, go on for some frames after the last life: wait for their end.
        life_lost = 0 < info["lives"] < self.lives
        self.life_lost = life_lost and not (terminated or truncated)
        self.lives = info["lives"]
        self.last = (observation, info)
        return observation, float(reward), terminated or life_lost, truncated, info


class FireOnReset(Wrapper):
    """Take the action fire for one step after a reset: some games wait for it (Baselines). If that
    ends the game, the next step reports it."""

    def __init__(self, env: Env, fire: int) -> None:
        super().__init__(env)
        self.fire = fire

    def reset(self, **options: Any) -> Any:
        self.env.reset(**options)
        observation, *_, info = self.env.step(self.fire)
        return observation, info
