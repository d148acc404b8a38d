"""Extras: features that the core does not name. Here is the table of what they add to it."""

FLAGS = {  # each a field of a callback, which takes part in the run if one of its flags is given
    "stop_when": "ppo.extras.stopping:Stopping",
    "patience": "ppo.extras.stopping:Stopping",
    "max_time": "ppo.extras.stopping:Stopping",
}
COMMANDS = {"evaluate": "ppo.extras.evaluate"}  # each has Flags and main(words, Flags, flags)
LOGGERS = {
    "tensorboard": "ppo.extras.tensorboard:TensorBoard",
    "wandb": "ppo.extras.wandb:WeightsAndBiases",
}
