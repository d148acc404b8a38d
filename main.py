"""Train PPO on a gymnasium environment: python main.py --env_name=LunarLander-v2 --model=mlp

Worker processes import this file, so it must not import anything heavy.
"""

import sys

from ppo.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
