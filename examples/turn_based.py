"""Turn a two-player game into an environment for one player: Connect Four plays the other side.

python main.py examples.turn_based:Game
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy import ndarray

COLUMNS, ROWS = 7, 6
# The fields (69, 4) of all lines of four: up, along rows and along both diagonals.
LINES = np.array(
    [
        [(column + i * right) * ROWS + row + i * up for i in range(4)]
        for right, up in ((0, 1), (1, 0), (1, 1), (1, -1))
        for column in range(COLUMNS - 3 * right)
        for row in range(ROWS)
        if 0 <= row + 3 * up < ROWS
    ]
)


class Game(gymnasium.Env):
    """Drop stones into columns; the first with four in a line wins, and the reward is 1, or -1.

    Observations are the fields, column by column from the bottom: 1 for the agent's stones, -1 for
    the opponent's, 0 for free fields. An episode depends only on seed, actions and opponents, so
    that a resumed run can replay it."""

    observation_space = spaces.Box(-1, 1, (COLUMNS * ROWS,))
    action_space = spaces.Discrete(COLUMNS)
    opponents: Sequence[str] = ()

    def set_training(self, opponents: Sequence[str]) -> None:
        """Set the opponents, one of which is drawn for each episode: files of Policy.save, or
        checkpoints, of feed-forward networks. An empty list: random play."""
        self.opponents = opponents

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.board = np.zeros(COLUMNS * ROWS, np.float32)  # as the agent sees it
        self.opponent = None
        if self.opponents:
            self.opponent = load(self.opponents[int(self.np_random.integers(len(self.opponents)))])
        if self.np_random.integers(2):  # the opponent begins
            self.answer()
        return self.board.copy(), {"action_mask": self.action_mask()}

    def step(self, action: int) -> Any:
        reward = self.drop(action, 1)
        if not self.is_over(reward):
            reward = self.answer()
        info: dict[str, Any] = {"action_mask": self.action_mask()}
        if is_over := self.is_over(reward):
            info = {"is_success": reward > 0, "drawn": reward == 0}
        return self.board.copy(), reward, is_over, False, info

    def answer(self) -> float:
        """Let the opponent act, with this environment's generator; return the agent's reward."""
        mask = self.action_mask()
        if not self.opponent:
            return self.drop(self.np_random.choice(np.flatnonzero(mask)), -1)
        self.opponent.generator = self.np_random
        info = {"action_mask": mask}
        return self.drop(self.opponent.predict(-self.board, stochastic=True, info=info), -1)

    def drop(self, column: int, stone: int) -> float:
        """Drop a stone, 1 or -1, into a column that is not full; return it if it wins, else 0."""
        fields = self.board[column * ROWS : (column + 1) * ROWS]
        fields[np.flatnonzero(fields == 0)[0]] = stone
        return float(stone) if (self.board[LINES] == stone).all(1).any() else 0.0

    def is_over(self, reward: float) -> bool:
        return reward != 0 or not self.action_mask().any()

    def action_mask(self) -> ndarray:
        return self.board[ROWS - 1 :: ROWS] == 0


@lru_cache(1000)  # all environments of a process share an opponent
def load(path: str) -> Any:
    from ppo import load_policy  # imports torch, which random play does not need

    return load_policy(path)
