"""Atari 2600 games through the emulator: each class is one part of the usual preprocessing.

Sources: Mnih et al. 2015, methods; Machado et al. 2018, section 5. ppo.envs.families.Atari.make
puts them around each other; ppo.envs.images.ImageStack resizes to 84 x 84 and stacks the images."""

from typing import Any

import numpy as np
from ale_py import Action, ALEState
from gymnasium import Env, Wrapper, spaces
from numpy import ndarray

from ppo.envs.episodes import Info, StepResult

FRAMES_PER_SECOND = 60


class AtariGame(Env):
    """Hold each action for frame_skip frames and sum their rewards.

    Observations are grayscale (H, W), or RGB (H, W, 3) if in_color, uint8: the pixel-wise maximum
    of the last two frames, since many games draw some objects in every other frame only. A game
    starts with 1 to noop_max no-op frames (none if noop_max is 0). Each later frame repeats the
    action of the frame before with the probability stickiness; these draws are seeded and saved,
    which those of the emulator's own sticky actions are not."""

    SAVED = ("held",)

    def __init__(
        self,
        env: Env,
        frame_skip: int,
        noop_max: int,
        stickiness: float,
        in_color: bool = False,
    ) -> None:
        """env: ale_py's, without sticky actions; its emulator is used directly, without a colour
        image of each frame."""
        self.env = env
        emulator: Any = env.unwrapped
        self.ale = emulator.ale
        self.spec = env.spec
        self.action_space = env.action_space
        self.render_mode = env.render_mode
        self.metadata = {**env.metadata, "render_fps": FRAMES_PER_SECOND / frame_skip}
        self.frame_skip = frame_skip
        self.noop_max = noop_max
        self.stickiness = stickiness
        self.actions = [Action.__members__[name] for name in emulator.get_action_meanings()]
        self.read_screen = self.ale.getScreenRGB if in_color else self.ale.getScreenGrayscale
        channels = (3,) if in_color else ()
        shape = (2, *self.ale.getScreenDims(), *channels)
        self.screen, self.screen_before = np.zeros(shape, np.uint8)
        self.observation_space = spaces.Box(0, 255, self.screen.shape, np.uint8)

    def reset(self, *, seed: int | None = None, **options: Any) -> tuple[ndarray, Info]:
        """Start a game; the seed determines the number of no-op frames and which actions stick."""
        super().reset(seed=seed)
        self.held = 0  # the index of the last frame's action, no-op
        ale = self.ale
        ale.reset_game()
        if self.noop_max:
            for _ in range(self.np_random.integers(1, self.noop_max + 1)):
                ale.act(Action.NOOP)
                if ale.game_over():
                    ale.reset_game()
        self.read_screen(self.screen)
        return self.screen.copy(), {"lives": ale.lives()}

    def step(self, action: int) -> StepResult:
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
        info = {"lives": ale.lives()}
        return self.screen.copy(), reward, terminated, ale.game_truncated(), info

    def render(self) -> Any:
        """Return the game's colours (H, W, 3), if it was made with render_mode="rgb_array"."""
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def save_emulator(self) -> bytes:
        """Serialize the emulator's state in 0.1 ms, without its random generator, which no game
        uses (of the 104 of ale_py, with two seeds each)."""
        return self.ale.cloneState().serialize()

    def restore_emulator(self, state: bytes) -> None:
        """Restore a state of the same game; the emulator raises for others."""
        # Before its first frame an emulator ignores a part of the state (seen in Qbert).
        self.ale.act(Action.NOOP)
        self.ale.restoreState(ALEState(state))


class EndOnLifeLoss(Wrapper):
    """End the episode when a life is lost; the reset after that continues the game."""

    SAVED = ("life_lost", "lives")

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.life_lost = False  # and the game goes on

    def reset(self, **options: Any) -> tuple[Any, Info]:
        if not self.life_lost:
            self.last = self.env.reset(**options)
        self.lives = self.last[1]["lives"]
        return self.last

    def step(self, action: int) -> StepResult:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.last = (observation, info)
        # Some games, such as Qbert, go on for some frames after the last life: wait for their end.
        life_lost = 0 < info["lives"] < self.lives
        self.life_lost = life_lost and not (terminated or truncated)
        self.lives = info["lives"]
        return observation, reward, terminated or life_lost, truncated, info


class FireOnReset(Wrapper):
    """Press the fire button for one step after a reset: some games wait for it (Baselines).

    If that ends the game, the next step reports it."""

    def __init__(self, env: Env, fire: int) -> None:
        """fire: the action that presses the button."""
        super().__init__(env)
        self.fire = fire

    def reset(self, **options: Any) -> tuple[Any, Info]:
        self.env.reset(**options)
        observation, _, _, _, info = self.env.step(self.fire)
        return observation, info
