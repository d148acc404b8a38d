"""Policies read what an environment itself shows: raw images, choices, dicts, one by one."""

from ppo.extensions import Extension

EXTENSION = Extension(reader="ppo.extras.raw_observations.reader:RawReader")
