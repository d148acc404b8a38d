"""CarRacing-v3 without the pictures that no one sees. For benchmarks.colors."""

from typing import Any

from gymnasium.envs.box2d import car_racing

EVERY = 4  # frames: what --frame_skip says, with which nothing else changes


class CarRacing(car_racing.CarRacing):
    """gymnasium's CarRacing-v3, whose frames are drawn only where the last of four is seen.

    Between two of them step returns the picture before. Drawing is most of the time of a step."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.frame = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.frame += action is not None  # None: reset draws the first frame
        return super().step(action)

    def _render(self, mode: str) -> Any:
        if mode == "state_pixels" and self.frame % EVERY:
            return self.state
        return super()._render(mode)
