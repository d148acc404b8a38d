"""Environments: made, observed, normalised, and stepped in worker processes, without torch."""
