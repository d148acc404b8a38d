"""Extras: features that the core does not name. Here is the table of what they add to it."""

LOGGERS = {
    "tensorboard": "ppo.extras.tensorboard:TensorBoard",
    "wandb": "ppo.extras.wandb:WeightsAndBiases",
}
