"""Raw observations: policies read what the environment itself shows, without its wrappers."""

from ppo.extensions import Extension

EXTENSION = Extension(reader="ppo.extras.raw_observations.reader:RawReader")
