"""Train one policy in several processes, called ranks, on one machine or several, by torchrun."""

from ppo.extensions import Extension

EXTENSION = Extension(
    complete="ppo.extras.distributed.launch:complete",
    peers="ppo.extras.distributed.launch:join",
    parts="ppo.extras.distributed.launch:make_parts",
)
