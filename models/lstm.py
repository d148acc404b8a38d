"""Actor-critics that remember."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ppo.models.actor_critic import FeedForward, Trunk
from ppo.models.distributions import Distribution


class Recurrent(FeedForward):
    """Policy and value read the features of an LSTM, which reads those of a trunk. States (b, 2 H): its output and its
    cell side by side, zero when an episode starts."""

    def __init__(self, make_trunk: Callable[[], Trunk], action_space: Any, config: Any) -> None:
        size = int(config.hidden_size)
        super().__init__(lambda: LSTMTrunk(make_trunk(), size), action_space, config)
        self.state_size = 2 * size

    def forward(
        self, observations: Tensor, states: Tensor | None = None, starts: Tensor | None = None
    ) -> tuple[Distribution, Tensor]:
        """observations: (T * b, *observation), time-major; states: (b, 2 H), with which the first of them are met;
        starts: (T * b) bool, which observations are an episode's first. Returns a distribution and values, (T * b)."""
        features = self.policy_trunk(observations, states, starts)[0]
        return self.heads(features, features)

    def act(
        self, observations: Tensor, states: Tensor | None
    ) -> tuple[Distribution, Tensor | None, Tensor | None]:
        trunk: Any = self.policy_trunk
        features, states = trunk.step(observations, states)
        return self.policy_head(features), features, states


class LSTMTrunk(Trunk):
    """Orthogonal initial weights, zero bias (Huang et al. 2022, "The 37 Implementation Details", LSTM 1)."""

    def __init__(self, encoder: Trunk, size: int) -> None:
        super().__init__()
        self.encoder, self.num_features = encoder, size
        self.lstm = nn.LSTM(encoder.num_features, size)
        for name, parameter in self.lstm.named_parameters():
            nn.init.zeros_(parameter) if "bias" in name else nn.init.orthogonal_(parameter)

    def step(self, observations: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """The same for one step of each, (b, *observation)."""
        state = tuple(part.contiguous() for part in states.unsqueeze(0).chunk(2, -1))
        output, state = self.lstm(self.encoder(observations).unsqueeze(0), state)
        return output.squeeze(0), torch.cat(state, -1).squeeze(0)

    def forward(
        self, observations: Tensor, states: Tensor, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As Recurrent's; returns features (T * b, H) and the last states (b, 2 H)."""
        inputs = self.encoder(observations).unflatten(0, (-1, len(states)))
        first = (
            inputs.new_zeros(inputs.shape[:2]) if starts is None else starts.view(inputs.shape[:2])
        )
        # A call of the LSTM for each stretch in which no episode starts.
        cuts = [0, *(first[1:].any(1).nonzero().ravel() + 1).tolist(), len(inputs)]
        outputs, state = [], states.unsqueeze(0).chunk(2, -1)
        for begin, end in pairwise(cuts):
            kept = 1 - first[begin].float().unsqueeze(-1)
            output, state = self.lstm(
                inputs[begin:end], tuple((part * kept).contiguous() for part in state)
            )
            outputs.append(output)
        return torch.cat(outputs).flatten(0, 1), torch.cat(state, -1).squeeze(0)
