"""python -m ppo, which does the same as the command ppo."""

import sys

from ppo.cli import main

if __name__ == "__main__":
    sys.exit(main())
