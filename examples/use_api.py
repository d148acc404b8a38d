"""Use the trainer from Python: train with a user-defined schedule, load the policy, and play.

python -m examples.use_api
"""

from ppo import Config, load_policy, train


def warm_down(remaining: float) -> float:
    """Keep the learning rate for half of the run, then decrease it to zero.

    remaining: the share of the run that is left, from 1 towards 0.
    """
    return 1e-3 * min(1.0, 2 * remaining)


config = Config(learning_rate=warm_down, clip_coef="linear:0.2", total_steps=50_000)
summary = train("CartPole-v1", config)
policy = load_policy(summary.checkpoint)
print("10 episodes:", policy.evaluate(episodes=10).returns)

env = policy.make_env()  # render_mode="human" to watch
observation, info = env.reset(seed=0)
policy.reset()
total, ended = 0.0, False
while not ended:
    action = policy.predict(observation, deterministic=True, info=info)
    observation, reward, terminated, truncated, info = env.step(action)
    total, ended = total + float(reward), terminated or truncated
print("one more:", total)
