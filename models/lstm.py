"""The trunk that remembers."""

from itertools import pairwise
from pkgutil import resolve_name

import torch
from torch import Tensor, nn

from ppo.models import MODELS, choose_model
from ppo.models.actor_critic import Trunk


class LSTMTrunk(Trunk):
    """An LSTM on the features of an encoder, which is the default trunk for the observations.

    States (b, 2 H) are its output and its cell side by side, zero at an episode's start. Orthogonal
    initial weights, zero biases (Huang et al. 2022, "The 37 Implementation Details", LSTM 1).
    """

    def __init__(self, observation_space, config, size: int) -> None:
        super().__init__()
        entry = MODELS[choose_model("auto", observation_space)]
        make_encoder = resolve_name(entry.make_trunk)
        self.encoder = make_encoder(observation_space, config, entry.hidden_size)
        self.num_features = size
        self.state_size = 2 * size
        self.lstm = nn.LSTM(self.encoder.num_features, size)
        for name, parameter in self.lstm.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                nn.init.orthogonal_(parameter)

    def step(self, observations: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (b, H) and next states (b, 2 H) of one step (b, *observation)."""
        state = tuple(part.contiguous() for part in states.unsqueeze(0).chunk(2, -1))
        output, state = self.lstm(self.encoder(observations).unsqueeze(0), state)
        return output.squeeze(0), torch.cat(state, -1).squeeze(0)

    def forward(self, observations: Tensor, states: Tensor, starts: Tensor) -> Tensor:
        """Return the features (T * b, H) of sequences; arguments as in Recurrent."""
        inputs = self.encoder(observations).unflatten(0, (-1, len(states)))
        starts = starts.view(inputs.shape[:2])
        # One call of the LSTM for each stretch of steps in which no episode starts.
        cuts = [0, *(starts[1:].any(1).nonzero().ravel() + 1).tolist(), len(inputs)]
        outputs = []
        state = states.unsqueeze(0).chunk(2, -1)
        for begin, end in pairwise(cuts):
            kept = 1 - starts[begin].float().unsqueeze(-1)
            state = tuple((part * kept).contiguous() for part in state)
            output, state = self.lstm(inputs[begin:end], state)
            outputs.append(output)
        return torch.cat(outputs).flatten(0, 1)
