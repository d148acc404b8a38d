"""A game for two as an environment for one seat: Connect Four, in which it plays the other seat.

python main.py --env_name=examples/turn_based.py:Game
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo.envs.errors import EnvironmentUnavailable
from ppo.errors import PPOError

COLUMNS = 7
ROWS = 6
HEIGHT = ROWS + 1  # bits of a column: the highest stays 0, so that no line leaves the board


class Game(gymnasium.Env):
    """Drop stones into columns; the first with four in a line wins, and the reward is 1, or -1.

    Observed are the fields, column by column from the bottom: 1 for an own stone, -1 for one of the
    opponent, 0 for a free field. An episode depends on seed, actions and opponents only."""

    observation_space = spaces.Box(-1, 1, (COLUMNS * ROWS,))
    action_space = spaces.Discrete(COLUMNS)

    def __init__(self) -> None:
        self.opponents: list[Any] = []

    def set_training(self, opponents: Sequence[str]) -> None:
        """Set the opponents, one of which is drawn for each episode: files of Policy.save, or
        checkpoints. None: random play. Raises EnvironmentUnavailable if a file cannot be used."""
        self.opponents = [load_opponent(path) for path in opponents]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.stones = [0, 0]  # of both players: bit HEIGHT * column + row
        self.heights = [0] * COLUMNS
        self.winner: int | None = None
        self.seat = int(self.np_random.integers(2))  # player 0 begins
        self.opponent = None
        if self.opponents:
            self.opponent = self.opponents[self.np_random.integers(len(self.opponents))]
            self.states = np.zeros((1, self.opponent.actor.state_size), np.float32)
        if self.seat == 1:
            self.drop(0, self.choose(0))
        return self.observe(self.seat), {"action_mask": self.action_mask()}

    def step(self, action: int) -> Any:
        other = 1 - self.seat
        self.drop(self.seat, action)
        if not self.is_over:
            self.drop(other, self.choose(other))
        info: dict[str, Any] = {"action_mask": self.action_mask()}
        reward = 0.0
        if self.winner is not None:
            reward = 1.0 if self.winner == self.seat else -1.0
        if self.is_over:
            info = {"is_success": reward > 0, "drawn": reward == 0}
        return self.observe(self.seat), reward, self.is_over, False, info

    @property
    def is_over(self) -> bool:
        return self.winner is not None or min(self.heights) == ROWS

    def drop(self, player: int, column: int) -> None:
        """Drop a stone. Raises ValueError if the column is full."""
        if self.heights[column] == ROWS:
            raise ValueError(f"column {column} is full: obey info['action_mask']")
        self.stones[player] |= 1 << HEIGHT * column + self.heights[column]
        self.heights[column] += 1
        if has_four(self.stones[player]):
            self.winner = player

    def choose(self, player: int) -> int:
        """Return the opponent's action, drawn from its policy by this environment's generator."""
        if self.opponent is None:
            free = [column for column in range(COLUMNS) if self.heights[column] < ROWS]
            return free[self.np_random.integers(len(free))]
        observations = self.observe(player)[None]
        infos = [{"action_mask": self.action_mask()}]
        return self.opponent.act(observations, infos, self.states, False, self.np_random)[0]

    def action_mask(self) -> np.ndarray:
        return np.array(self.heights) < ROWS

    def observe(self, player: int) -> np.ndarray:
        """Return the board (COLUMNS * ROWS,) as a player sees it."""
        own, other = fields(self.stones[player]), fields(self.stones[1 - player])
        return np.subtract(own, other, dtype=np.float32)


def has_four(stones: int) -> bool:
    """Return whether four stones are in a line: up, along a row, or along a diagonal."""
    for step in (1, HEIGHT, HEIGHT - 1, HEIGHT + 1):
        pairs = stones & stones >> step
        if pairs & pairs >> 2 * step:
            return True
    return False


def fields(stones: int) -> np.ndarray:
    """Return 1 for each field with a stone, else 0: (COLUMNS * ROWS,)."""
    octets = np.frombuffer(stones.to_bytes(8, "little"), np.uint8)
    bits = np.unpackbits(octets, count=COLUMNS * HEIGHT, bitorder="little")
    return bits.reshape(COLUMNS, HEIGHT)[:, :ROWS].ravel()


@lru_cache(1_000)  # all environments of a process share a policy, which act does not change
def load_opponent(path: str) -> Any:
    from ppo import load_policy  # imports torch, which random play does not need

    try:
        return load_policy(path)
    except PPOError as error:
        raise EnvironmentUnavailable(f"opponents: {error}") from error
