"""Extras: features that the core does not name. There are none yet."""
