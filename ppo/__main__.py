"""python -m ppo, which does the same as the command ppo."""

from ppo.cli import main

raise SystemExit(main())
