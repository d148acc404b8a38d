"""The main module of worker processes, in place of the user's script, which they do not import."""

import gc

gc.disable()  # until the imports are done: ppo.envs.worker_process enables it
