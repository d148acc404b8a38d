"""Extras: features that plug into the trainer by ppo.extensions, and may each be deleted."""
