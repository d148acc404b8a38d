"""Loggers for TensorBoard and Weights & Biases, with histograms."""

from ppo.extensions import Extension

EXTENSION = Extension(
    flags=(
        "ppo.extras.loggers.flags:NameFlags",
        "ppo.extras.loggers.flags:HistogramFlags",
        "ppo.extras.loggers.flags:WandbFlags",
    ),
    callbacks="ppo.extras.loggers.histograms:make_callbacks",
    loggers={
        "tensorboard": "ppo.extras.loggers.tensorboard:TensorBoardLogger",
        "wandb": "ppo.extras.loggers.wandb:WandbLogger",
    },
)
