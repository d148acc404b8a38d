"""Recurrent networks: --model=lstm and --model=gru."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ppo.config import Config
from ppo.envs.make import Spaces
from ppo.errors import ConfigError
from ppo.models import HIDDEN_SIZES, make_trunk
from ppo.models.actor_critic import FeedForward, Outputs, Step, Trunk
from ppo.models.numpy_mlp import MASKED_LOGIT


def make_recurrent(spaces: Spaces) -> "Recurrent":
    """Make an LSTM or a GRU on the features of an MLP or a CNN."""
    kind = "cnn" if spaces.layout.images else "mlp"
    size = HIDDEN_SIZES[kind]
    return Recurrent(lambda: make_trunk(spaces, size), spaces)


class RecurrentTrunk(Trunk):
    """An LSTM or a GRU (--model) on the features of an encoder.

    States, zero when an episode begins: the output (b, H) of a GRU, output and cell (b, 2 H) of an
    LSTM. Initialized as in Huang et al. 2022, "The 37 Implementation Details", LSTM 1."""

    def __init__(self, encoder: Trunk, config: Config) -> None:
        super().__init__()
        size = int(config.hidden_size)
        self.encoder = encoder
        self.kind = kind = config.model
        self.num_features = size
        self.state_size = size if kind == "gru" else 2 * size
        make_layer = getattr(nn, kind.upper())
        self.add_module(kind, make_layer(encoder.num_features, size))
        for weight in self.weights[:2]:
            nn.init.orthogonal_(weight)
        for bias in self.weights[2:]:
            nn.init.zeros_(bias)

    @property
    def weights(self) -> list[Tensor]:
        """Weights (K * H, F) and (K * H, H) of K gates, and both biases (K * H,)."""
        return getattr(self, self.kind).all_weights[0]

    def step(self, observations: Any, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (b, H) and next states (b, S) of one step (b, *observation)."""
        inputs = self.encoder(observations)
        if self.kind == "gru":
            states = torch.gru_cell(inputs, states, *self.weights)
        else:
            both = states.chunk(2, -1)
            parts = torch.lstm_cell(inputs, both, *self.weights)
            states = torch.cat(parts, -1)
        return states[:, : self.num_features], states

    def forward(
        self,
        observations: Any,
        states: Tensor,
        starts: Tensor,
    ) -> Tensor:
        """Return the features (T * b, H) of sequences; arguments as in ActorCritic.

        All episodes take one call, with an extra step before each start: there, an extra input of
        1 closes the first two gates and cancels the third's bias, and the state becomes zero."""
        size = len(states)
        features = self.encoder(observations)
        inputs = features.unflatten(0, (-1, size))
        weight, *others = self.weights
        reset_column = -others[1].unsqueeze(1)
        reset_column[: 2 * self.num_features] = MASKED_LOGIT
        extended = torch.cat([weight, reset_column], 1)
        lengths = starts.view(-1, size) + 1  # in steps, with the extra one
        positions = lengths.cumsum(0) - 1
        index = (positions, torch.arange(size))
        steps = nn.functional.pad(inputs, (0, 1))
        num_steps = int(positions.max()) + 1
        padded = steps.new_zeros(num_steps, *steps.shape[1:])
        padded[..., -1] = 1
        padded[index] = steps
        state: Any = states.unsqueeze(0)
        if self.kind == "lstm":
            both = state.chunk(2, -1)
            state = [part.contiguous() for part in both]
        unroll = getattr(torch, self.kind)
        # With biases, one layer, no dropout, in one direction, time first.
        options = (True, 1, 0.0, self.training, False, False)
        outputs, *_ = unroll(padded, state, [extended, *others], *options)
        return outputs[index].flatten(0, 1)


class Recurrent(FeedForward):
    """Linear policy and value heads on one RecurrentTrunk. Raises ConfigError if they are to have
    one each."""

    policy_trunk: RecurrentTrunk

    def __init__(self, make_encoder: Callable[[], Trunk], spaces: Spaces) -> None:
        config = spaces.config
        if not config.share_trunk:
            raise ConfigError(f"--model={config.model} shares its trunk: leave --share_trunk out")
        encoder = make_encoder()
        super().__init__(lambda: RecurrentTrunk(encoder, config), spaces)

    def forward(
        self,
        observations: Any,
        states: Any = None,
        starts: Any = None,
        rows: Any = slice(None),
    ) -> Outputs:
        if starts is None:
            features, _ = self.policy_trunk.step(observations, states)
        else:
            features = self.policy_trunk(observations, states, starts)[rows]
        return self.heads(features, features)

    def act(self, observations: Any, states: Tensor) -> Step:
        features, states = self.policy_trunk.step(observations, states)
        return self.policy_head(features), features, states
