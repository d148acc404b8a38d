"""Use the trainer from Python: train with a schedule of your own, load the policy, and play.

python examples/use_api.py
"""

import sys

from ppo import Config, load_policy, train


def warm_down(remaining: float) -> float:
    """Keep the learning rate for half of the run, then decrease it to zero.

    remaining: the fraction of the run that remains, from 1 towards 0."""
    return 1e-3 * min(1.0, 2 * remaining)


def main(total_steps: int = 50_000) -> None:
    config = Config(learning_rate=warm_down, clip_coef="linear:0.2", total_steps=total_steps)
    summary = train("CartPole-v1", config)
    policy = load_policy(summary.checkpoint)
    print("10 episodes:", policy.evaluate(episodes=10).returns)

    env = policy.make_env()  # render_mode="human" to watch
    observation, info = env.reset(seed=0)
    policy.reset()
    total, is_over = 0.0, False
    while not is_over:
        action = policy.predict(observation, info=info)
        observation, reward, terminated, truncated, info = env.step(action)
        total, is_over = total + float(reward), terminated or truncated
    print("one more:", total)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
