"""CarRacing-v3 without the pictures that no one sees. For benchmarks.colors."""

from typing import Any

from gymnasium.envs.box2d import car_racing

FRAME_SKIP = 4  # of the preset CarRacing-v3, with which it has to be trained


class CarRacing(car_racing.CarRacing):
    """gymnasium's CarRacing-v3, which draws only every fourth frame of an episode: the one that an
    agent sees with --frame_skip=4.

    In between, step returns the picture before. Drawing takes most of the time of a step."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.frame = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.frame += action is not None  # None: reset draws the first frame
        return super().step(action)

    def _render(self, mode: str) -> Any:
        if mode == "state_pixels" and self.frame % FRAME_SKIP:
            return self.state
        return super()._render(mode)
