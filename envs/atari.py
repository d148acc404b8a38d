"""Atari 2600 games through the emulator, one part of the usual preprocessing each (Mnih et al. 2015, methods; Machado
et al. 2018, section 5). What becomes of the images is in envs/images.py."""

from typing import Any

import gymnasium
import numpy as np
from ale_py import Action, ALEState

FRAMES_PER_SECOND = 60


class AtariGame(gymnasium.Env):
    """An action is held for frame_skip frames and their rewards are added up. The observation (H, W) uint8 is gray, of
    the last two frames the brighter pixel each, for many games draw a thing in every other frame only. A game starts
    with 1 to noop_max frames of doing nothing (none if 0). The array of the observation is used again."""

    def __init__(self, env: gymnasium.Env, frame_skip: int, noop_max: int) -> None:
        """env: ale_py's, whose emulator is used directly, without a colour image for every frame."""
        unwrapped: Any = env.unwrapped
        self.env, self.ale, self.get_action_meanings = (
            env,
            unwrapped.ale,
            unwrapped.get_action_meanings,
        )
        self.spec, self.action_space, self.render_mode = env.spec, env.action_space, env.render_mode
        self.metadata = {**env.metadata, "render_fps": FRAMES_PER_SECOND / frame_skip}
        self.frame_skip, self.noop_max = frame_skip, noop_max
        self.actions = [Action.__members__[name] for name in self.get_action_meanings()]
        self.screen, self.screen_before = np.zeros((2, *self.ale.getScreenDims()), np.uint8)
        self.observation_space = gymnasium.spaces.Box(0, 255, self.screen.shape, np.uint8)
        self.emulator_seeded = False

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The seed decides how long nothing is done. The emulator's own randomness, which sticky actions come from, is
        seeded by the first reset only: to seed it is to load the game anew, 80 ms."""
        super().reset(seed=seed)
        if seed is not None and not self.emulator_seeded:
            self.env.reset(seed=seed)
            self.emulator_seeded = True
        else:
            self.ale.reset_game()
        for _ in range(self.np_random.integers(1, self.noop_max + 1) if self.noop_max else 0):
            self.ale.act(Action.NOOP)
            if self.ale.game_over():
                self.ale.reset_game()
        self.ale.getScreenGrayscale(self.screen)
        return self.screen, {"lives": self.ale.lives()}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        ale, held, reward = self.ale, self.actions[action], 0.0
        for frame in range(1, self.frame_skip + 1):
            reward += ale.act(held)
            if ale.game_over():
                break
            if frame == self.frame_skip - 1:
                ale.getScreenGrayscale(self.screen_before)
        ale.getScreenGrayscale(self.screen)
        if 1 < frame == self.frame_skip:
            np.maximum(self.screen, self.screen_before, out=self.screen)
        over, lives = ale.game_over(with_truncation=False), ale.lives()
        return self.screen, reward, over, ale.game_truncated(), {"lives": lives}

    def render(self) -> Any:
        """The game in its own colours, (H, W, 3), if it was made to be seen so."""
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def save(self) -> bytes:
        """The state of the emulator, with its own randomness: 14 KB, 0.1 ms."""
        return self.ale.cloneState(include_rng=True).serialize()

    def restore(self, state: bytes) -> None:
        """Go on from a state of the same game; raises whatever the emulator does for others."""
        self.ale.act(
            Action.NOOP
        )  # before its first frame an emulator does not take on all of a state (seen in Qbert)
        self.ale.restoreState(ALEState(state))
        self.emulator_seeded = True


class EndOnLifeLoss(gymnasium.Wrapper):
    """To lose a life ends the episode, and a reset after that goes on with the game: it starts anew only when over."""

    SAVED = ("game_over", "lives")

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.game_over = True

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        if self.game_over:
            self.last = self.env.reset(**options)
            self.game_over = False
        self.lives = self.last[1]["lives"]
        return self.last

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.last, self.game_over = (observation, info), terminated or truncated
        # Some games, such as Qbert, are not over for some frames after the last life: then the learner waits for that.
        life_lost = 0 < info["lives"] < self.lives
        self.lives = info["lives"]
        return observation, reward, terminated or life_lost, truncated, info


class FireOnReset(gymnasium.Wrapper):
    """After a reset the fire button is pressed for a step, which some games wait for (Baselines). Should that end the
    game, the next step says so."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.fire = env.get_wrapper_attr("get_action_meanings")().index("FIRE")

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.env.reset(**options)
        observation, _, _, _, info = self.env.step(self.fire)
        return observation, info
