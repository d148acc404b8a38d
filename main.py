"""Train PPO on a gymnasium environment: python main.py --env_name=LunarLander-v2 --model=mlp"""

import sys

try:
    from ppo.system.signals import STOP

    if __name__ == "__main__":
        STOP.keep_until_exit()  # before the other imports, which take longer
    from ppo.__main__ import main
except KeyboardInterrupt:
    print("interrupted: stopped at once", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
