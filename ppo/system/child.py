"""Main module of worker processes, which they import before numpy and not the user's script."""

import gc
import os

gc.disable()  # until the imports are done: ppo.envs.worker_process enables it
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
