"""Main module of worker processes: they import it instead of the user's script."""

import gc

gc.disable()  # until the imports are done: ppo.envs.worker_process enables it
