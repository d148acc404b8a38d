"""One step of the LSTM and GRU in numpy, for acting."""

import numpy as np
from numpy import ndarray


class NumpyCell:
    """An LSTM or a GRU (kind: "lstm" or "gru") with K gates of H units each.

    arrays: torch's weights (K * H, F) and (K * H, H), and biases (K * H,). refresh() copies them as
    (K, F, H), (K, H, H) and (K, 1, H): for a few rows, products with contiguous (in, out) matrices
    are several times as fast as with transposed views. Copies for sigmoid gates are halved, since
    sigmoid(x) = (1 + tanh(x / 2)) / 2.
    """

    def __init__(self, kind: str, arrays: list[ndarray]) -> None:
        self.kind = kind
        self.arrays = arrays
        num_gates = 3 if kind == "gru" else 4
        self.scale = np.array([0.5, 0.5, 1, 0.5], np.float32)[:num_gates, None, None]

    def refresh(self) -> None:
        """Copy the current weights."""
        self.copies = []
        for array in self.arrays:
            gates = array.reshape(len(self.scale), -1, array[0].size).swapaxes(1, 2)
            self.copies.append(np.multiply(gates, self.scale, order="C"))

    def __call__(self, inputs: ndarray, states: ndarray) -> ndarray:
        """Return outputs (n, H) for inputs (n, F), and write the next states to states (n, S)."""
        weight_ih, weight_hh, bias_ih, bias_hh = self.copies
        size = weight_hh.shape[-1]
        output, cell = states[:, :size], states[:, size:]
        input_part = inputs @ weight_ih + bias_ih
        hidden_part = output @ weight_hh + bias_hh
        if self.kind == "gru":
            reset_gate, update_gate = 0.5 + 0.5 * np.tanh(input_part[:2] + hidden_part[:2])
            candidate = np.tanh(input_part[2] + reset_gate * hidden_part[2])
            output[:] = candidate + update_gate * (output - candidate)
        else:
            gates = 1 - self.scale + self.scale * np.tanh(input_part + hidden_part)
            input_gate, forget_gate, candidate, output_gate = gates
            cell[:] = forget_gate * cell + input_gate * candidate
            output[:] = output_gate * np.tanh(cell)
        return output
