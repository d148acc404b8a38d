"""Environments: made, observed, normalized, and stepped in worker processes, without torch."""
