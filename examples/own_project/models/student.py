"""A network that reads the camera only, to learn from a teacher that reads the joints."""

from typing import Any

from torch import Tensor

from ppo.models.actor_critic import FeedForward, Outputs, Step
from ppo.models.cnn import make_small_nature_trunk
from ppo.models.observation_parts import split


class CameraStudent(FeedForward):
    """A CNN for policy and value."""

    policy_parts = ("camera",)

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        camera = observation_space.parts["camera"]

        def make_trunk(layers: Any) -> Any:
            return make_small_nature_trunk(camera, config, 128)

        super().__init__(make_trunk, action_space, config)
        self.space = observation_space

    def forward(self, observations: Tensor) -> Outputs:
        return super().forward(split(self.space, observations)["camera"])

    def act(self, observations: Tensor, states: Any) -> Step:
        return super().act(split(self.space, observations)["camera"], states)
