"""Environments: made, observed, normalised, and stepped in worker processes.

Import it as ppo.envs. Nothing here imports torch."""
