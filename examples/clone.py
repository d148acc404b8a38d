"""Begin with demonstrations: a scripted expert plays CartPole, and a policy learns from it first.

python -m examples.clone
"""

from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np

from ppo import record, train


def expert(observation: np.ndarray) -> int:
    """Push the cart to the side to which the pole is falling."""
    _, _, angle, velocity = observation
    return int(angle + 0.3 * velocity > 0)


with TemporaryDirectory() as folder:
    path = f"{folder}/expert.npz"
    returns = record(expert, "CartPole-v1", episodes=10, path=path)
    cloned = train("CartPole-v1", demonstrations=path, total_steps=0)
    trained = train("CartPole-v1", demonstrations=path, stop_when="solved")

print("expert:", fmean(returns))
print("clone:", cloned.evaluation.mean)
print("trained:", trained.evaluation.mean, "after", trained.steps, "steps")
