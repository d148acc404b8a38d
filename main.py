"""Train PPO on a gymnasium environment: python main.py --env_name=LunarLander-v2 --model=mlp"""

from ppo.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
